"""What the guards of PostgreSQL and of MySQL must both do. A test file takes these tests with `from sql_suite import *` and brings

    dialect         how the database spells it: a Dialect
    server          a running server with the guard and, by make_tables(), the tables below

Tables: `register` holds a value that writers read, add one to, and write back. `plain` is `register` without a guard. `journal` gets one
row for each UPDATE of those two, from a trigger of its own, so that it is part of the same statement; its numbers are in the order of the
writes, since a writer holds its claim when it draws one. `shares` is guarded with a resource for each row.
"""

import itertools
import os
import threading

import pytest

from databases import RETRY
from pawltest.wait import until

LONG = os.environ.get("PAWL_TEST_LONG") == "1"
ROUNDS = 5000 if LONG else 500
GREATEST = 2**53 - 1

__all__ = ["GREATEST", "Dialect", "admin", "open_session", "resource"]  # and each test, at the end


class Dialect:
    """Subclasses set: begin, fence(resource, token), say(token), say_nothing, forget(resource), and the level names of their server."""

    begin = "BEGIN;"

    def token_of(self, resource):
        return f"SELECT token FROM pawl.fences WHERE resource = '{resource}';"

    def write(self, table, resource, writer):
        return f"UPDATE {table} SET value = value + 1, writer = {writer} WHERE resource = '{resource}';\n"


_numbers = itertools.count(1)


@pytest.fixture
def open_session(server):
    """Opens sessions and closes them after the test, which ends their transactions."""
    yield server.session
    server.close_sessions()


@pytest.fixture
def admin(open_session):
    return open_session()


@pytest.fixture
def resource(admin):
    """A resource of the test's own that nobody has claimed yet, with its row in `plain`."""
    name = f"res/{next(_numbers)}"
    admin.must(f"INSERT INTO plain (resource, value) VALUES ('{name}', 0);")
    return name


def fence_of(admin, dialect, resource):
    rows = admin.must(dialect.token_of(resource)).rows
    return int(rows[0]) if rows else None


def journal(admin, resource):
    """The tokens of the committed writes in their order."""
    return [int(row) for row in admin.must(f"SELECT token FROM journal WHERE resource = '{resource}' ORDER BY number;").rows]


def value(admin, table, resource):
    return int(admin.must(f"SELECT value FROM {table} WHERE resource = '{resource}';").value)


def write_once(session, dialect, resource, token):
    """A transaction in the statement form, from its begin to its end; its first error, if any."""
    claimed = session.run(dialect.begin + dialect.fence(resource, token))
    if claimed.code:
        session.run("ROLLBACK;")
        return claimed
    done = session.run(dialect.write("plain", resource, token) + "COMMIT;")
    if done.code:
        session.run("ROLLBACK;")
    return done


# ---------------------------------------------------------------- the comparison


def test_equal_and_greater_tokens_are_taken_and_smaller_ones_refused(admin, dialect, resource):
    """Broken: a holder's second write is refused, or a predecessor's is taken. (The fence for P2.)"""
    for token, code in ((5, None), (5, None), (7, None), (6, "PAWL1"), (5, "PAWL1"), (7, None), (1, "PAWL1"), (GREATEST, None),
        (GREATEST - 1, "PAWL1")):
        result = write_once(admin, dialect, resource, token)
        assert result.code == code, (token, result)
        if code:
            assert f"stale fencing token {token}: {resource} has taken " in result.text
    assert journal(admin, resource) == [5, 5, 7, 7, GREATEST]
    assert fence_of(admin, dialect, resource) == GREATEST


def test_resources_are_independent(admin, dialect):
    """Broken: a claim on one lock refuses the holder of another; names that differ by case or are a prefix of another are one."""
    names = [f"many/{i}" for i in range(200)] + ["Many/1", "many", "many/", "many/1:fence", "m" * 255, "m" * 254]
    admin.must(dialect.begin + "\n".join(dialect.fence(name, 1000 - i) for i, name in enumerate(names)) + "COMMIT;")
    for i, name in enumerate(names):
        assert fence_of(admin, dialect, name) == 1000 - i


def test_claims_of_several_resources_in_one_transaction(admin, dialect, resource):
    """Broken: the second claim of a transaction takes the place of the first, or a smaller token slips in behind a greater one of the
    same transaction."""
    other = resource + "/other"
    admin.must(dialect.begin + dialect.fence(resource, 10) + dialect.fence(other, 20) + dialect.fence(resource, 10)
        + dialect.fence(resource, 12))
    assert admin.run(dialect.fence(resource, 11)).code == "PAWL1"
    admin.run("ROLLBACK;")
    assert (fence_of(admin, dialect, resource), fence_of(admin, dialect, other)) == (None, None)


def test_what_is_no_token_or_no_name_is_refused(admin, dialect, resource):
    """Broken: NULL, zero, a fraction that is rounded up to somebody else's token, a word, or a number that JSON can't carry passes for a
    token."""
    admin.must(dialect.fence(resource, 5))
    for token in ("NULL", "0", "-1", "-6", "5.5", "6.0", "1e400", "'six'", "''", "' '", "'6x'", "'6.0'", "'0x10'", str(GREATEST + 1),
        str(2**63), str(2**64 + 6)):
        result = admin.run(dialect.fence(resource, token))
        assert result.code in dialect.refusals, (token, result)
    for name in ("NULL", "''", "'" + "n" * 256 + "'"):
        result = admin.run(dialect.fence_raw(name, 5))
        assert result.code == "PAWL2", (name, result)
    assert fence_of(admin, dialect, resource) == 5


def test_a_fence_cannot_be_lowered_by_hand(admin, dialect, resource):
    """Broken: an UPDATE around fence() takes a token down. Deleting the row is the way, and is what the README says."""
    admin.must(dialect.fence(resource, 5))
    assert admin.run(f"UPDATE pawl.fences SET token = 4 WHERE resource = '{resource}';").code == "PAWL1"
    assert admin.run(f"UPDATE pawl.fences SET resource = '{resource}/x' WHERE resource = '{resource}';").code == "PAWL1"
    for token in ("0", "-1", str(GREATEST + 1), "NULL"):
        assert admin.run(f"INSERT INTO pawl.fences (resource, token) VALUES ('{resource}/new', {token});").code is not None
    assert fence_of(admin, dialect, resource) == 5
    admin.must(f"DELETE FROM pawl.fences WHERE resource = '{resource}';")
    admin.must(dialect.fence(resource, 3))


def test_the_setup_runs_again_and_loses_no_token(server, admin, dialect, resource):
    """Broken: an upgrade of the guard forgets what it has seen."""
    admin.must(dialect.fence(resource, 9))
    server.script(dialect.setup)
    assert admin.run(dialect.fence(resource, 8)).code == "PAWL1"
    admin.must(dialect.fence(resource, 9))


# ---------------------------------------------------------------- two writers


def blocked(server, admin, session, connection_id):
    """Polls until the session waits for a lock."""
    until(lambda: session.answered() or server.is_blocked(admin, connection_id), what="the session waits for a lock")
    assert not session.answered(), "it did not wait"


@pytest.mark.parametrize("old_commits", [True, False])
def test_a_fresh_writer_waits_for_a_claim_and_then_reads_what_it_wrote(server, admin, open_session, dialect, resource, old_commits):
    """Broken: the successor is let in between an older holder's claim and its commit, and reads what will be overwritten."""
    old, new = open_session(), open_session()
    new_id = server.connection_id(new)
    old.must(dialect.begin + dialect.fence(resource, 5) + dialect.write("plain", resource, 5))
    new.start(dialect.begin + dialect.fence(resource, 6))
    blocked(server, admin, new, new_id)
    old.must("COMMIT;" if old_commits else "ROLLBACK;")
    assert new.finish().code is None
    assert value(new, "plain", resource) == int(old_commits)
    new.must(dialect.write("plain", resource, 6) + "COMMIT;")
    assert journal(admin, resource) == [5, 6][not old_commits:]
    assert old.run(dialect.begin + dialect.fence(resource, 5)).code == "PAWL1"


def test_a_stale_writer_waits_for_the_fresh_one_and_is_refused(server, admin, open_session, dialect, resource):
    """Broken: the old holder compares with what was committed when it began."""
    old, new = open_session(), open_session()
    old_id = server.connection_id(old)
    new.must(dialect.begin + dialect.fence(resource, 6))
    old.start(dialect.begin + dialect.fence(resource, 5))
    blocked(server, admin, old, old_id)
    new.must(dialect.write("plain", resource, 6) + "COMMIT;")
    assert old.finish().code == "PAWL1"
    old.run("ROLLBACK;")
    assert journal(admin, resource) == [6]


def test_a_fresh_claim_that_is_rolled_back_refuses_nobody(server, admin, open_session, dialect, resource):
    """Broken: a token that was never committed refuses the holder before it. Here its client dies in mid-transaction."""
    old, new = open_session(), open_session()
    old_id = server.connection_id(old)
    old.must(dialect.fence(resource, 4))
    new.must(dialect.begin + dialect.fence(resource, 6) + dialect.write("plain", resource, 6))
    old.start(dialect.begin + dialect.fence(resource, 5))
    blocked(server, admin, old, old_id)
    new.kill9()
    assert old.finish().code is None
    old.must(dialect.write("plain", resource, 5) + "COMMIT;")
    assert journal(admin, resource) == [5]
    assert fence_of(admin, dialect, resource) == 5


def test_a_savepoint_gives_a_claim_back(server, admin, open_session, dialect, resource):
    """Broken: after ROLLBACK TO SAVEPOINT the transaction still thinks that it holds the claim, and writes without one."""
    session, other = open_session(), open_session()
    session.must(dialect.begin + dialect.fence(resource, 5) + "SAVEPOINT s;" + dialect.fence(resource, 7) + "ROLLBACK TO SAVEPOINT s;")
    session.must(dialect.fence(resource, 6) + dialect.write("plain", resource, 6) + "COMMIT;")
    assert fence_of(admin, dialect, resource) == 6
    session.must(dialect.begin + "SAVEPOINT s;" + dialect.fence(resource, 7) + "ROLLBACK TO SAVEPOINT s;")
    other.start(dialect.fence(resource, 8))
    if other.answered(0.2):  # the database let go of the row's lock together with the claim
        assert other.finish().code is None
        assert session.run(dialect.fence(resource, 7)).code in ("PAWL1",) + RETRY
        session.run("ROLLBACK;")
    else:
        session.must(dialect.fence(resource, 7) + dialect.write("plain", resource, 7) + "COMMIT;")
        assert other.finish().code is None
        assert journal(admin, resource) == [6, 7]
    assert fence_of(admin, dialect, resource) == 8


def steps_of(dialect, resource, token, form):
    """A writer's transaction in its steps. The first takes a snapshot, where the isolation level has one."""
    begin = dialect.begin + f"SELECT COUNT(*) FROM journal WHERE resource = '{resource}';"
    table = "plain" if form == "fence" else "register"
    claim = dialect.fence(resource, token) if form == "fence" else dialect.say(token)
    return [begin, claim, dialect.write(table, resource, token), "COMMIT;"]


class Writer:
    """Goes through its steps. A statement that has to wait is left waiting; a transaction that the database gives up is run again."""

    def __init__(self, session, dialect, resource, token, form):
        self.session = session
        self.steps = steps_of(dialect, resource, token, form)
        self.at = 0
        self.refused = False
        self.again = 0

    @property
    def done(self):
        return self.refused or self.at == len(self.steps)

    def step(self, patience_s=0.015):
        """Takes the next step, or goes on waiting for the last; False when it waits."""
        if self.done:
            return True
        if self.session.waiting is None:
            self.session.start(self.steps[self.at])
        if not self.session.answered(patience_s):
            return False
        result = self.session.finish()
        if result.code is None:
            self.at += 1
            return True
        self.session.run("ROLLBACK;")
        if result.code == "PAWL1":
            self.refused = True
        else:
            assert result.code in RETRY, result
            self.again += 1
            assert self.again < 20
            self.at = 0
        return True


def interleavings():
    """Each order in which the four steps of an old writer and the four of a new one can come."""
    for places in itertools.combinations(range(8), 4):
        yield "".join("o" if i in places else "n" for i in range(8))


def check_interleavings(admin, dialect, old_session, new_session, form):
    for order in interleavings():
        resource = f"order/{form}/{next(_numbers)}"
        table = "plain" if form == "fence" else "register"
        admin.must(dialect.begin + dialect.say(1) + f"INSERT INTO {table} (resource, value) VALUES ('{resource}', 0); COMMIT;")
        old, new = (Writer(session, dialect, resource, token, form) for session, token in ((old_session, 5), (new_session, 6)))
        for who in order:
            (old if who == "o" else new).step()
        for _ in range(100):
            if old.done and new.done:
                break
            old.step()
            new.step()
        assert old.done and not new.refused and new.done, order
        written = journal(admin, resource)
        assert written == ([6] if old.refused else [5, 6]), order
        assert value(admin, table, resource) == len(written), order
        assert fence_of(admin, dialect, resource if form == "fence" else dialect.table_resource) == 6
        if form == "trigger":
            admin.must(f"DELETE FROM pawl.fences WHERE resource = '{dialect.table_resource}';")


@pytest.mark.parametrize("form", ["fence", "trigger"])
def test_two_writers_in_every_order_of_their_steps(admin, open_session, dialect, level, form):
    """Broken: some order of two transactions lets the stale write in after the fresh one, or loses a write, or refuses the fresh one."""
    if form == "trigger":
        admin.must(f"DELETE FROM pawl.fences WHERE resource = '{dialect.table_resource}';")
    check_interleavings(admin, dialect, open_session(level), open_session(level), form)


def race(sessions, admin, dialect, rounds, name_of, first_token, tokens_of):
    """Each session, in a thread of its own, makes one transaction a round: claim, read, write one more than it read. Returns (round,
    token, code) of each."""
    outcomes, problems = [], []
    barrier = threading.Barrier(len(sessions))

    def go(index, session):
        try:
            for i in range(rounds):
                barrier.wait(60)
                name = name_of(i)
                token = tokens_of(first_token, i, index)
                for _ in range(50):
                    result = session.run(dialect.begin + dialect.fence(name, token) + f"SELECT value FROM plain WHERE resource = '{name}';")
                    if result.code is None:
                        result = session.run(f"UPDATE plain SET value = {int(result.rows[-1]) + 1}, writer = {token} "
                            f"WHERE resource = '{name}'; COMMIT;")
                    if result.code is not None:
                        session.run("ROLLBACK;")
                    if result.code not in RETRY:
                        break
                outcomes.append((i, token, result.code))
        except BaseException as error:  # the other threads must not wait for ever
            problems.append(repr(error))
            barrier.abort()

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    return outcomes


def test_racing_rounds_on_one_resource(admin, open_session, dialect, level, resource):
    """500 rounds of two writers at once, the greater token in either session by turns. Broken: a stale write after a fresh one, a write
    lost, a fresh one refused, a fence that went down."""
    sessions = [open_session(level), open_session(level)]
    outcomes = race(sessions, admin, dialect, ROUNDS, lambda i: resource, 100, lambda first, i, index: first + 2 * i + (index + i) % 2)
    assert len(outcomes) == 2 * ROUNDS
    for i, token, code in outcomes:
        assert code is None or (code == "PAWL1" and token == 100 + 2 * i), (i, token, code)
    written = journal(admin, resource)
    assert written == sorted(written)
    assert sorted(token for _, token, code in outcomes if code is None) == written
    assert value(admin, "plain", resource) == len(written)
    assert fence_of(admin, dialect, resource) == 100 + 2 * ROUNDS - 1


def test_racing_for_the_first_use_of_a_resource(admin, open_session, dialect, level):
    """Broken: of several who use a resource first, at once, one fails for another reason than its token, or a smaller one is left in the
    fence."""
    rounds = 60
    base = f"first/{next(_numbers)}/"
    admin.must(dialect.begin + "\n".join(f"INSERT INTO plain (resource, value) VALUES ('{base}{i}', 0);" for i in range(rounds))
        + "COMMIT;")
    sessions = [open_session(level) for _ in range(3)]
    outcomes = race(sessions, admin, dialect, rounds, lambda i: f"{base}{i}", 5, lambda first, i, index: first + (index + i) % 3)
    for i, token, code in outcomes:
        assert code is None or (code == "PAWL1" and token < 7), (i, token, code)
    for i in range(rounds):
        written = journal(admin, f"{base}{i}")
        assert written == sorted(written) and written[-1] == 7
        assert value(admin, "plain", f"{base}{i}") == len(written)
        assert fence_of(admin, dialect, f"{base}{i}") == 7


# ---------------------------------------------------------------- the trigger form


def test_a_guarded_table_takes_no_write_without_a_token(admin, dialect):
    """Broken: one of INSERT, UPDATE and DELETE is a way around the fence, or a read is held up by it."""
    admin.must(dialect.begin + dialect.say(50) + "INSERT INTO register (resource, value) VALUES ('w', 1), ('w2', 1);" + "COMMIT;")
    admin.must(dialect.say_nothing)
    for statement in dialect.every_write("register", "w"):
        for prelude, code in ((dialect.begin, "PAWL2"), (dialect.begin + dialect.say("'x'"), "PAWL2"),
            (dialect.begin + dialect.say(0), "PAWL2"),
                (dialect.begin + dialect.say(49), "PAWL1")):
            result = admin.run(prelude + statement)
            assert result.code == code, (prelude, statement, result)
            admin.run("ROLLBACK;" + dialect.say_nothing)
    assert admin.must("SELECT value FROM register WHERE resource IN ('w', 'w2');").rows == ["1", "1"]
    for statement in dialect.every_write("register", "w"):
        admin.must(dialect.begin + dialect.say(51) + statement + "ROLLBACK;")
    admin.must(dialect.begin + dialect.say(50) + "DELETE FROM register WHERE resource IN ('w', 'w2'); COMMIT;" + dialect.say_nothing)
    admin.must(f"DELETE FROM pawl.fences WHERE resource = '{dialect.table_resource}';")


def test_a_stale_session_is_refused_after_a_fresh_one_with_the_same_statements(admin, open_session, dialect):
    """The scenario of the mission in the trigger form: statements that know nothing of tokens."""
    old, new = open_session(), open_session()
    admin.must(dialect.begin + dialect.say(1) + "INSERT INTO register (resource, value) VALUES ('m', 100); COMMIT;" + dialect.say_nothing)
    old.must(dialect.begin + dialect.say(60) + "UPDATE register SET value = 101 WHERE resource = 'm'; COMMIT;")
    new.must(dialect.begin + dialect.say(61) + "UPDATE register SET value = 150 WHERE resource = 'm'; COMMIT;")
    result = old.run(dialect.begin + dialect.say(60) + "UPDATE register SET value = 102 WHERE resource = 'm';")
    assert result.code == "PAWL1" and "PAWL1 stale fencing token 60" in result.text
    old.run("COMMIT;")
    assert value(admin, "register", "m") == 150
    new.must(dialect.begin + dialect.say(61) + "UPDATE register SET value = 151 WHERE resource = 'm'; COMMIT;")
    admin.must(dialect.begin + dialect.say(61) + "DELETE FROM register WHERE resource = 'm'; COMMIT;" + dialect.say_nothing)
    admin.must(f"DELETE FROM pawl.fences WHERE resource = '{dialect.table_resource}';")


def test_a_resource_for_each_row(admin, dialect):
    """Broken: the token of one row's lock writes another row; a row that moves from one resource to another needs only one of them."""
    admin.must(dialect.begin + dialect.say(10) + "INSERT INTO shares (id, value) VALUES (1, 0); COMMIT;")
    admin.must(dialect.begin + dialect.say(30) + "INSERT INTO shares (id, value) VALUES (2, 0); COMMIT;")
    for token, statement, code in (
        (10, "UPDATE shares SET value = 1 WHERE id = 1;", None),
        (20, "UPDATE shares SET value = 1 WHERE id = 2;", "PAWL1"),
        (20, "UPDATE shares SET value = 2;", "PAWL1"),
        (20, "UPDATE shares SET id = 3 WHERE id = 2;", "PAWL1"),
        (20, "DELETE FROM shares WHERE id = 2;", "PAWL1"),
        (20, "INSERT INTO shares (id, value) VALUES (3, 0);", None),
        (25, "UPDATE shares SET id = 2 WHERE id = 3;", "PAWL1"),
        (25, "UPDATE shares SET id = 4 WHERE id = 3;", None),
        (24, "INSERT INTO shares (id, value) VALUES (3, 0);", "PAWL1"),
        (30, "DELETE FROM shares WHERE id = 2;", None),
    ):
        result = admin.run(dialect.begin + dialect.say(token) + statement)
        assert result.code == code, (token, statement, result)
        admin.run("ROLLBACK;" if code else "COMMIT;")
    admin.must(dialect.say_nothing)
    assert [fence_of(admin, dialect, f"share/{i}") for i in (1, 2, 3, 4)] == [10, 30, 25, 25]
    assert admin.must("SELECT id FROM shares ORDER BY id;").rows == ["1", "4"]
    admin.must(dialect.begin + dialect.say(99) + "DELETE FROM shares; COMMIT;" + dialect.say_nothing)


def test_an_application_needs_no_right_to_the_fences(server, admin, dialect):
    """Broken: the role that writes must be able to set a fence back, or the guard works for the owner only."""
    app = dialect.application_session(server, admin)
    try:
        app.must(dialect.begin + dialect.fence("app", 5) + "COMMIT;")
        app.must(dialect.begin + dialect.say(70) + "INSERT INTO register (resource, value) VALUES ('app', 0); COMMIT;")
        assert app.run(dialect.begin + dialect.fence("app", 4)).code == "PAWL1"
        app.run("ROLLBACK;" + dialect.say_nothing)
        for statement in ("DELETE FROM pawl.fences;", "UPDATE pawl.fences SET token = 9;",
            "INSERT INTO pawl.fences (resource, token) VALUES ('x', 1);"):
            assert app.run(statement).code == dialect.forbidden, statement
    finally:
        app.close()
    admin.must(dialect.begin + dialect.say(70) + "DELETE FROM register WHERE resource = 'app'; COMMIT;" + dialect.say_nothing)
    admin.must(f"DELETE FROM pawl.fences WHERE resource = '{dialect.table_resource}';")


# ---------------------------------------------------------------- crashes


def test_a_stopped_holder_in_mid_transaction_is_timed_out(server, admin, open_session, dialect, resource):
    """Broken: a holder that stops inside its transaction keeps its successor out for ever. The setting is the one that the README names."""
    old, new = open_session(), open_session()
    new_id = server.connection_id(new)
    old.must(dialect.idle_limit)
    old.must(dialect.begin + dialect.fence(resource, 5) + dialect.write("plain", resource, 5))
    new.start(dialect.begin + dialect.fence(resource, 6))
    blocked(server, admin, new, new_id)
    assert new.finish().code is None
    new.must(dialect.write("plain", resource, 6) + "COMMIT;")
    assert journal(admin, resource) == [6]


def test_the_server_crashes_and_knows_its_fences(server, dialect, resource):
    """Broken: after a crash of the database a claim that was committed with a write is gone while the write is there, or the other way
    round."""
    session = server.session()
    session.must(dialect.durable)
    assert write_once(session, dialect, resource, 8).code is None
    session.must(dialect.begin + dialect.fence(resource, 9) + dialect.write("plain", resource, 9))
    server.close_sessions()
    server.crash()
    server.start()
    session = server.session()
    try:
        assert (fence_of(session, dialect, resource), journal(session, resource), value(session, "plain", resource)) == (8, [8], 1)
        assert write_once(session, dialect, resource, 7).code == "PAWL1"
        assert write_once(session, dialect, resource, 8).code is None
    finally:
        server.close_sessions()


__all__ += [name for name in dir() if name.startswith("test_")]
