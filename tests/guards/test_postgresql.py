"""The guard of PostgreSQL (client/guards/postgresql) on a real server."""

import pytest

from databases import PostgresServer, guard_file, readme_blocks
from sql_suite import *  # noqa: F401,F403
from sql_suite import Dialect, fence_of

pytestmark = pytest.mark.skipif(PostgresServer.missing() is not None, reason=str(PostgresServer.missing()))

TABLES = """
CREATE TABLE journal (number bigserial PRIMARY KEY, resource text NOT NULL, token bigint NOT NULL);
CREATE TABLE plain (resource text PRIMARY KEY, value int NOT NULL, writer bigint);
CREATE TABLE register (resource text PRIMARY KEY, value int NOT NULL, writer bigint);
CREATE TABLE shares (id int PRIMARY KEY, value int NOT NULL);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN INSERT INTO journal (resource, token) VALUES (NEW.resource, NEW.writer); RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON plain FOR EACH ROW WHEN (NEW.writer IS NOT NULL) EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER UPDATE ON register FOR EACH ROW WHEN (NEW.writer IS NOT NULL) EXECUTE FUNCTION note();
CREATE ROLE app LOGIN;
GRANT USAGE ON SCHEMA pawl TO app;
GRANT EXECUTE ON FUNCTION pawl.fence(text, bigint) TO app;
GRANT INSERT, UPDATE, DELETE, SELECT ON register TO app;
"""


def example(row_form=False):
    """protect-table.sql as it is, for other tables: what the README gives people to copy is what is tested."""
    text = guard_file("postgresql", "protect-table.sql")
    if not row_form:
        return text.replace("accounts", "register")
    lines = [line[2:].strip() for line in text.splitlines() if line.startswith("--     ") and "psql" not in line]
    assert len(lines) == 3
    return "\n".join(lines).replace("accounts", "shares").replace("'account/'", "'share/'")


class Postgres(Dialect):
    name = "postgresql"
    forbidden = "42501"
    table_resource = "register"
    setup = guard_file("postgresql", "pawl.sql")
    refusals = ("PAWL2", "42883", "22P02", "22003")  # no such function for that type, not a number, out of range
    say_nothing = "RESET pawl.token;"
    idle_limit = "SET idle_in_transaction_session_timeout = '500ms';"
    durable = "SET synchronous_commit = on;"

    def fence(self, resource, token):
        return self.fence_raw(f"'{resource}'", token)

    def fence_raw(self, resource, token):
        return f"SELECT FROM pawl.fence({resource}, {token});\n"

    def say(self, token):
        return f"SET LOCAL pawl.token = {token};\n"

    def every_write(self, table, key):
        return (
            f"INSERT INTO {table} (resource, value) VALUES ('{key}/new', 1);",
            f"INSERT INTO {table} (resource, value) VALUES ('{key}', 2) ON CONFLICT (resource) DO UPDATE SET value = 2;",
            f"INSERT INTO {table} (resource, value) VALUES ('{key}', 2) ON CONFLICT DO NOTHING;",
            f"INSERT INTO {table} (resource, value) SELECT resource || '/copy', 3 FROM {table};",
            f"UPDATE {table} SET value = 2 WHERE resource = '{key}';",
            f"UPDATE {table} SET value = 2;",
            f"WITH w AS (UPDATE {table} SET value = 2 RETURNING 1) SELECT FROM w;",
            f"DELETE FROM {table} WHERE resource = '{key}';",
            f"DELETE FROM {table};",
            f"TRUNCATE {table};",
            f"COPY {table} (resource, value) FROM STDIN;\n{key}/copied\t1\n\\.\n",
            f"SET session_replication_role = replica; DELETE FROM {table};",
        )

    def application_session(self, server, admin):
        session = server.session()
        session.must("SET SESSION AUTHORIZATION app;")
        return session


@pytest.fixture(scope="module")
def server():
    it = PostgresServer()
    try:
        it.start()
        it.script(Postgres.setup)
        it.script(TABLES)
        it.script(example())
        it.script(example(row_form=True))
        yield it
    finally:
        it.close()


@pytest.fixture
def dialect():
    return Postgres()


@pytest.fixture(params=[PostgresServer.default_level, "SERIALIZABLE"])
def level(request):
    return request.param


def test_a_claim_serves_the_triggers_of_its_transaction_and_of_no_other(admin, dialect):
    """Broken: in a transaction under two locks the trigger of one table takes the token of the other's lock; a claim outlives its
    transaction in a pooled connection."""
    admin.must("BEGIN;" + dialect.fence("register", 20) + dialect.fence("share/9", 40)
        + "INSERT INTO register (resource, value) VALUES ('c', 1); INSERT INTO shares (id, value) VALUES (9, 1); COMMIT;")
    assert (fence_of(admin, dialect, "register"), fence_of(admin, dialect, "share/9")) == (20, 40)
    assert admin.run("DELETE FROM register WHERE resource = 'c';").code == "PAWL2"
    # a savepoint takes the claim away, and the trigger's leave with it
    admin.must("BEGIN; SAVEPOINT s;" + dialect.fence("register", 20) + "ROLLBACK TO SAVEPOINT s;")
    assert admin.run("DELETE FROM register WHERE resource = 'c';").code == "PAWL2"
    admin.must("ROLLBACK; BEGIN;" + dialect.say(40) + "DELETE FROM register; DELETE FROM shares; COMMIT; DELETE FROM pawl.fences;")


def test_a_trigger_that_is_set_up_wrongly_refuses(admin):
    """Broken: a typo in the trigger's arguments guards nothing and says nothing."""
    for arguments in ("", "'a', 'b', 'c'", "'a/', 'no_such_column'"):
        admin.must("CREATE TABLE wrong (id int);"
            "CREATE TRIGGER g BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION pawl.guard(%s);" % arguments)
        assert admin.run("BEGIN; SET LOCAL pawl.token = 5; INSERT INTO wrong VALUES (1);").code == "PAWL2"
        admin.must("ROLLBACK; DROP TABLE wrong;")


def test_repeatable_read_is_told_to_try_again(open_session, dialect, resource):
    """Broken: a transaction with a snapshot from before the successor's claim passes its own claim. It must fail with 40001, and with
    PAWL1 when repeated."""
    old, new = open_session("REPEATABLE READ"), open_session("REPEATABLE READ")
    old.must("BEGIN; SELECT value FROM plain;")
    new.must("BEGIN;" + dialect.fence(resource, 6) + "COMMIT;")
    assert old.run(dialect.fence(resource, 5)).code in ("40001", "PAWL1")
    old.must("ROLLBACK; BEGIN; SELECT value FROM plain;")
    assert old.run(dialect.fence(resource, 5)).code == "PAWL1"


def test_deadlocks_end_with_an_error_and_no_loss(open_session, dialect, admin, resource):
    """Two who claim two resources crosswise: one of them is told 40P01, the other goes on."""
    other = resource + "/b"
    one, two = open_session(), open_session()
    one.must("BEGIN;" + dialect.fence(resource, 5))
    two.must("BEGIN;" + dialect.fence(other, 5))
    one.start(dialect.fence(other, 5))
    two.start(dialect.fence(resource, 5))
    codes = [one.finish().code, two.finish().code]
    assert sorted(codes, key=str) == ["40P01", None], codes


def test_what_the_readme_says_to_type(server, admin, dialect):
    """Also protect-table.sql as it is."""
    grants, statement_form, trigger_form = readme_blocks("postgresql", "sql")
    admin.must("CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO accounts VALUES (17, 100);" + grants
        + statement_form)
    server.script(guard_file("postgresql", "protect-table.sql"))
    admin.must(trigger_form)
    assert admin.must("SELECT balance FROM accounts;").value == "170"
    token = fence_of(admin, dialect, "accounts")
    assert token > 2**50
    assert admin.run(trigger_form.replace(str(token), str(token - 1))).code == "PAWL1"
    admin.run("ROLLBACK;")
    assert admin.must("SELECT balance FROM accounts;").value == "170"
