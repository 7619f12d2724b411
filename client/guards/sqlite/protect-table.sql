-- The trigger form: an example to copy, for a table "accounts". From then on a connection that says no token, or a stale one, can't write
-- to it.
--
--     sqlite3 my.db <protect-table.sql
--
-- SQLite has no variables of a session. The token comes from pawl_token(), a function that each connection defines for itself
-- (README.md); a connection without it can't write. Here one lock, "accounts", is for the whole table.

BEGIN IMMEDIATE;

CREATE TRIGGER accounts_pawl_insert BEFORE INSERT ON accounts BEGIN
    INSERT INTO pawl_fence (resource, token) VALUES ('accounts', pawl_token());
END;
CREATE TRIGGER accounts_pawl_update BEFORE UPDATE ON accounts BEGIN
    INSERT INTO pawl_fence (resource, token) VALUES ('accounts', pawl_token());
END;
CREATE TRIGGER accounts_pawl_delete BEFORE DELETE ON accounts BEGIN
    INSERT INTO pawl_fence (resource, token) VALUES ('accounts', pawl_token());
END;

-- Instead, a lock for each row, "account/17" for the row whose id is 17: write 'account/' || NEW.id for the name, OLD.id for DELETE, and
-- for UPDATE one INSERT with OLD.id and one with NEW.id, since a row that changes its id needs both.

COMMIT;
