-- pawl's guard for MySQL and MariaDB: refuses writers whose fencing token is smaller than one that has written before.
--
--     mariadb <pawl.sql        (or: mysql <pawl.sql)
--
-- pawl.fences keeps the greatest token that each resource has taken. pawl.fence(resource, token) claims a resource in the caller's
-- transaction. pawl.guard(resource) is for triggers: it claims with the token in @pawl_token. README.md tells how they are used. Running
-- this file again is harmless and loses no token. MySQL 8.0.16, MariaDB 10.3 or later; the guarded tables must be InnoDB.
--
-- Why it is correct under concurrency: INSERT ... ON DUPLICATE KEY UPDATE takes the exclusive lock of the resource's row, new or old, and
-- keeps it until the transaction ends; so of two transactions with one resource the second waits for the first. Statements that lock read
-- what was committed last, at every isolation level, not the transaction's snapshot: having waited, the second compares with what the
-- first has left. GREATEST() keeps the row from going down.

CREATE DATABASE IF NOT EXISTS pawl;

-- ascii_bin: names of locks are ASCII, and "A" and "a" are two locks.
CREATE TABLE IF NOT EXISTS pawl.fences (
    resource VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL COMMENT 'the greatest that was taken; to start a resource anew, delete its row',
    CONSTRAINT fences_token CHECK (token BETWEEN 1 AND 9007199254740991)
) ENGINE = InnoDB;

-- Routines keep the mode in which they were made: a value that doesn't fit must be an error, not cut to fit.
SET @pawl_mode = @@SESSION.sql_mode;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';

DROP TRIGGER IF EXISTS pawl.fences_only_up;
DROP PROCEDURE IF EXISTS pawl.guard;
DROP PROCEDURE IF EXISTS pawl.fence;

DELIMITER //

-- Whoever writes the table without pawl.fence() can't lower a token either.
CREATE TRIGGER pawl.fences_only_up BEFORE UPDATE ON pawl.fences FOR EACH ROW
BEGIN
    IF NEW.token < OLD.token OR NEW.resource <> OLD.resource THEN
        SIGNAL SQLSTATE 'PAWL1' SET MESSAGE_TEXT = 'PAWL1 stale fencing token: a fence only goes up; to start a resource anew, delete its row';
    END IF;
END //

-- Claims the resource for this token until the end of the transaction. Smaller than one before: error PAWL1. Not a token, or not a name:
-- PAWL2.
--
-- The token comes as text, since a BIGINT parameter would round 16.5 up to 17, which is another's token. Numbers are turned into their
-- text by the server.
CREATE PROCEDURE pawl.fence(
    IN in_resource VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN in_token VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'claims a resource for a fencing token, in the transaction of the caller'
BEGIN
    DECLARE name VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE said BIGINT;
    DECLARE taken BIGINT;
    DECLARE message VARCHAR(128) CHARACTER SET utf8mb4;

    IF in_token IS NULL OR CHAR_LENGTH(in_token) NOT BETWEEN 1 AND 16 OR in_token REGEXP '[^0-9]' OR LEFT(in_token, 1) = '0'
        OR CAST(in_token AS UNSIGNED) > 9007199254740991 THEN
        SET message = CONCAT('PAWL2 not a fencing token: ', COALESCE(in_token, 'NULL'));
        SIGNAL SQLSTATE 'PAWL2' SET MESSAGE_TEXT = message;
    END IF;
    IF in_resource IS NULL OR CHAR_LENGTH(in_resource) NOT BETWEEN 1 AND 255 OR in_resource REGEXP '[^!-~]' THEN
        SIGNAL SQLSTATE 'PAWL2' SET MESSAGE_TEXT = 'PAWL2 not a resource: its name has 1 to 255 visible ASCII characters';
    END IF;
    SET name = in_resource;
    SET said = CAST(in_token AS UNSIGNED);

    INSERT INTO pawl.fences (resource, token) VALUES (name, said) ON DUPLICATE KEY UPDATE token = GREATEST(token, said);
    SELECT token INTO taken FROM pawl.fences WHERE resource = name FOR UPDATE;
    IF taken > said THEN
        SET message = LEFT(CONCAT('PAWL1 stale fencing token ', said, ': ', LEFT(name, 64), ' has taken ', taken), 128);
        SIGNAL SQLSTATE 'PAWL1' SET MESSAGE_TEXT = message;
    END IF;
END //

-- What triggers call: claims with the token of the session.
CREATE PROCEDURE pawl.guard(IN in_resource VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'for triggers: claims a resource for the token in @pawl_token'
BEGIN
    CALL pawl.fence(in_resource, @pawl_token);
END //

DELIMITER ;

SET SESSION sql_mode = @pawl_mode;
SET @pawl_mode = NULL;
