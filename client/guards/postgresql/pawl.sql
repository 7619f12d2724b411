-- pawl's guard for PostgreSQL: refuses writers whose fencing token is smaller than one that has written before.
--
--     psql -d mydb -v ON_ERROR_STOP=1 -f pawl.sql
--
-- pawl.fences keeps the greatest token that each resource has taken. pawl.fence(resource, token) claims a resource in the caller's
-- transaction. pawl.guard is the trigger that does so for every statement or row of a table. README.md tells how they are used. Running
-- this file again is harmless and loses no token. PostgreSQL 11 or later.
--
-- Why it is correct under concurrency: INSERT ... ON CONFLICT DO UPDATE waits for whoever holds the resource's row, new or old, and then
-- holds it until the transaction ends; so of two transactions with one resource the second waits for the first. Having waited, at READ
-- COMMITTED its WHERE looks at what the first has committed; at REPEATABLE READ and SERIALIZABLE it fails with 40001, and meets the new
-- token when it is run again.

BEGIN;

CREATE SCHEMA IF NOT EXISTS pawl;

CREATE TABLE IF NOT EXISTS pawl.fences (
    resource text PRIMARY KEY CHECK (length(resource) BETWEEN 1 AND 255),
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991) -- below 2^53
);
COMMENT ON TABLE pawl.fences IS 'The greatest fencing token that each resource has taken. Rows only go up; to start a resource anew, delete its row.';

-- Whoever writes the table without pawl.fence() can't lower a token either.
CREATE OR REPLACE FUNCTION pawl.refuse_lower() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'PAWL1',
        MESSAGE = format('PAWL1 stale fencing token %s: %s has taken %s', NEW.token, OLD.resource, OLD.token),
        HINT = 'A fence only goes up. To start a resource anew, delete its row.';
END
$$;
DROP TRIGGER IF EXISTS only_up ON pawl.fences;
CREATE TRIGGER only_up BEFORE UPDATE ON pawl.fences
    FOR EACH ROW WHEN (NEW.token < OLD.token OR NEW.resource <> OLD.resource)
    EXECUTE FUNCTION pawl.refuse_lower();

-- Claims the resource for this token until the end of the transaction. Smaller than one before: error PAWL1. Not a token, or not a name:
-- PAWL2.
CREATE OR REPLACE FUNCTION pawl.fence(resource text, token bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    claims jsonb := coalesce(nullif(current_setting('pawl.claims', true), ''), '{}')::jsonb;
    taken bigint;
BEGIN
    IF fence.token IS NULL OR fence.token NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION USING ERRCODE = 'PAWL2', MESSAGE = format('PAWL2 not a fencing token: %s', coalesce(fence.token::text, 'NULL'));
    END IF;
    IF fence.resource IS NULL OR length(fence.resource) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'PAWL2', MESSAGE = 'PAWL2 not a resource: its name has 1 to 255 characters';
    END IF;

    -- This transaction has the row already. The setting is undone together with the claim, by the transaction's end or its rollback to a
    -- savepoint.
    IF (claims ->> fence.resource)::bigint = fence.token THEN
        RETURN;
    END IF;

    INSERT INTO pawl.fences AS f (resource, token) VALUES (fence.resource, fence.token)
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token;
    IF NOT FOUND THEN
        SELECT f.token INTO taken FROM pawl.fences AS f WHERE f.resource = fence.resource;
        RAISE EXCEPTION USING
            ERRCODE = 'PAWL1',
            MESSAGE = format('PAWL1 stale fencing token %s: %s has taken %s', fence.token, fence.resource, taken),
            HINT = 'The lock has had another holder since. Do not repeat this: acquire the lock anew and begin from the start.';
    END IF;
    PERFORM set_config('pawl.claims', (claims || jsonb_build_object(fence.resource, fence.token))::text, true);
END
$$;

-- The trigger. Its token is the one that this transaction has claimed the resource with, else the setting pawl.token.
--     FOR EACH STATEMENT EXECUTE FUNCTION pawl.guard('NAME')              the whole table is the resource NAME
--     FOR EACH ROW EXECUTE FUNCTION pawl.guard('PREFIX', 'COLUMN')        each row is the resource PREFIX followed by the value of its column
CREATE OR REPLACE FUNCTION pawl.guard() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resources text[];
    name text;
    said text;
    claims jsonb := coalesce(nullif(current_setting('pawl.claims', true), ''), '{}')::jsonb;
BEGIN
    IF TG_NARGS = 1 THEN
        resources := ARRAY[TG_ARGV[0]];
    ELSIF TG_NARGS = 2 AND TG_LEVEL = 'ROW' THEN
        -- A row that moves from one resource to another needs both.
        IF TG_OP <> 'INSERT' THEN
            resources := resources || (TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]));
        END IF;
        IF TG_OP <> 'DELETE' THEN
            resources := resources || (TG_ARGV[0] || (to_jsonb(NEW) ->> TG_ARGV[1]));
        END IF;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'PAWL2', MESSAGE = format('PAWL2 trigger %I: pawl.guard takes a name, or for each row a prefix and a column', TG_NAME);
    END IF;

    -- in one order, so that two such rows can't wait for each other
    FOR name IN SELECT DISTINCT r FROM unnest(resources) AS r ORDER BY r LOOP
        IF name IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'PAWL2', MESSAGE = format('PAWL2 trigger %I: no column %I in the row, or it is NULL', TG_NAME, TG_ARGV[1]);
        END IF;
        said := coalesce(claims ->> name, current_setting('pawl.token', true), '');
        IF said !~ '\A[1-9][0-9]{0,15}\Z' THEN
            RAISE EXCEPTION USING
                ERRCODE = 'PAWL2',
                MESSAGE = format('PAWL2 not a fencing token: %L, for a write to %I.%I', said, TG_TABLE_SCHEMA, TG_TABLE_NAME),
                HINT = 'In each transaction: SET LOCAL pawl.token = ''the token of the lease'', or SELECT pawl.fence(resource, token).';
        END IF;
        PERFORM pawl.fence(name, said::bigint);
    END LOOP;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION pawl.fence(text, bigint) FROM PUBLIC;

COMMIT;
