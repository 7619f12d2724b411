-- pawl's guard for SQLite: refuses writers whose fencing token is smaller than one that has written before.
--
--     sqlite3 my.db <pawl.sql
--
-- pawl_fences keeps the greatest token that each resource has taken. INSERT INTO pawl_fence (resource, token) VALUES (?, ?) claims a
-- resource in the caller's transaction: pawl_fence is a view whose trigger does the work. README.md tells how it is used. Running this
-- file again is harmless and loses no token. SQLite 3.24 or later.
--
-- Why it is correct under concurrency: SQLite has one writer at a time, and a claim makes its transaction that writer until it ends. A
-- transaction that began by reading and finds that another has written since is refused by SQLite itself (SQLITE_BUSY_SNAPSHOT in WAL
-- mode, SQLITE_BUSY otherwise).

CREATE TABLE IF NOT EXISTS pawl_fences (
    resource TEXT NOT NULL PRIMARY KEY CHECK (typeof(resource) = 'text' AND length(resource) BETWEEN 1 AND 255),
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991) -- below 2^53
) WITHOUT ROWID;

BEGIN IMMEDIATE;

DROP TRIGGER IF EXISTS pawl_fences_only_up;
DROP TRIGGER IF EXISTS pawl_fence_claim;
DROP VIEW IF EXISTS pawl_fence;

-- Whoever writes the table without pawl_fence can't lower a token either. To start a resource anew, delete its row.
CREATE TRIGGER pawl_fences_only_up BEFORE UPDATE ON pawl_fences WHEN NEW.token < OLD.token OR NEW.resource <> OLD.resource
BEGIN
    SELECT RAISE(ABORT, 'PAWL1 stale fencing token');
END;

CREATE VIEW pawl_fence (resource, token) AS SELECT resource, token FROM pawl_fences;

-- Smaller than one before: error PAWL1. Not a token, or not a name: PAWL2.
--
-- No ON CONFLICT in here: SQLite lets the OR IGNORE or OR REPLACE of the statement outside take the place of a conflict clause in a
-- trigger.
CREATE TRIGGER pawl_fence_claim INSTEAD OF INSERT ON pawl_fence
BEGIN
    SELECT RAISE(ABORT, 'PAWL2 not a fencing token') WHERE typeof(NEW.token) <> 'integer' OR NEW.token NOT BETWEEN 1 AND 9007199254740991;
    SELECT RAISE(ABORT, 'PAWL2 not a resource') WHERE typeof(NEW.resource) <> 'text' OR length(NEW.resource) NOT BETWEEN 1 AND 255;
    SELECT RAISE(ABORT, 'PAWL1 stale fencing token') FROM pawl_fences WHERE resource = NEW.resource AND token > NEW.token;
    UPDATE pawl_fences SET token = NEW.token WHERE resource = NEW.resource AND token < NEW.token;
    INSERT INTO pawl_fences (resource, token)
        SELECT NEW.resource, NEW.token WHERE NOT EXISTS (SELECT 1 FROM pawl_fences WHERE resource = NEW.resource);
END;

COMMIT;
