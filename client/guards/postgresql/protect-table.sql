-- The trigger form: an example to copy, for a table "accounts". From then on a transaction that says no token, or a stale one, can't
-- write to it.
--
--     psql -d mydb -v ON_ERROR_STOP=1 -f protect-table.sql
--
-- Here one lock, "accounts", is for the whole table.

BEGIN;

CREATE TRIGGER pawl_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON accounts
    FOR EACH STATEMENT EXECUTE FUNCTION pawl.guard('accounts');
ALTER TABLE accounts ENABLE ALWAYS TRIGGER pawl_guard;

-- Instead, a lock for each row, "account/17" for the row whose id is 17:
--
--     CREATE TRIGGER pawl_guard BEFORE INSERT OR UPDATE OR DELETE ON accounts
--         FOR EACH ROW EXECUTE FUNCTION pawl.guard('account/', 'id');
--     REVOKE TRUNCATE ON accounts FROM app;

COMMIT;
