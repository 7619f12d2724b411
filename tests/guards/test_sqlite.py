"""The guard of SQLite (client/guards/sqlite), through Python's sqlite3 and the sqlite3 command."""

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest

from databases import guard_file, readme_blocks

ROUNDS = 5000 if os.environ.get("PAWL_TEST_LONG") == "1" else 500
GREATEST = 2**53 - 1
TABLES = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE plain (resource TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE journal (number INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL, token INTEGER NOT NULL);
"""
CLAIM = "INSERT INTO pawl_fence (resource, token) VALUES (?, ?)"


def open_database(path, token=None, timeout_s=20.0):
    """A connection in autocommit, so that BEGIN and COMMIT are the test's. token: what pawl_token() says; None is a connection that
    doesn't define it."""
    db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    if token is not None:
        db.create_function("pawl_token", 0, lambda: token)
    return db


@pytest.fixture(params=["delete", "wal"])
def path(request, tmp_path):
    """A database with the guard and a protected table, in each of the two kinds of journal."""
    path = str(tmp_path / "test.db")
    db = open_database(path)
    db.execute(f"PRAGMA journal_mode = {request.param}")
    for script in (guard_file("sqlite", "pawl.sql"), TABLES, guard_file("sqlite", "protect-table.sql")):
        db.executescript(script)
    db.close()
    return path


def refused(db, code, sql, parameters=()):
    with pytest.raises(sqlite3.Error) as caught:
        db.execute(sql, parameters)
    assert str(caught.value).startswith(code), caught.value
    if code.startswith("PAWL"):
        assert isinstance(caught.value, sqlite3.IntegrityError)
        assert caught.value.sqlite_errorname == "SQLITE_CONSTRAINT_TRIGGER"


def fences(db):
    return dict(db.execute("SELECT resource, token FROM pawl_fences"))


def test_equal_and_greater_tokens_are_taken_and_smaller_ones_refused(path):
    db = open_database(path)
    for token, code in ((5, None), (5, None), (7, None), (6, "PAWL1"), (1, "PAWL1"), (7, None), (GREATEST, None), (GREATEST - 1, "PAWL1")):
        if code:
            refused(db, "PAWL1 stale fencing token", CLAIM, ("a", token))
        else:
            db.execute(CLAIM, ("a", token))
    for i in range(200):
        db.execute(CLAIM, (f"many/{i}", 1000 - i))
    db.execute(CLAIM, ("A", 1))
    assert fences(db) == {"a": GREATEST, "A": 1, **{f"many/{i}": 1000 - i for i in range(200)}}


def test_what_is_no_token_or_no_name_is_refused(path):
    db = open_database(path)
    db.execute(CLAIM, ("a", 5))
    for token in (None, 0, -1, 5.5, 6.0, "6", "", "six", b"6", GREATEST + 1, 2**63 - 1):
        refused(db, "PAWL2 not a fencing token", CLAIM, ("a", token))
        refused(db, "PAWL2 not a fencing token", CLAIM.replace("INSERT", "INSERT OR IGNORE"), ("new", token))
    for name in (None, "", "n" * 256, 5, b"a"):
        refused(db, "PAWL2 not a resource", CLAIM, (name, 5))
    db.execute(CLAIM, ("n" * 255, 5))
    assert fences(db) == {"a": 5, "n" * 255: 5}


def test_a_fence_cannot_be_lowered_by_hand(path):
    db = open_database(path)
    db.execute(CLAIM, ("a", 5))
    refused(db, "PAWL1", "UPDATE pawl_fences SET token = 4")
    refused(db, "PAWL1", "UPDATE OR IGNORE pawl_fences SET token = 4")
    refused(db, "PAWL1", "UPDATE pawl_fences SET resource = 'b'")
    for token in (0, GREATEST + 1, "x", None, 5.5):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("INSERT INTO pawl_fences VALUES ('b', ?)", (token,))
    db.execute("DELETE FROM pawl_fences")
    db.execute(CLAIM, ("a", 3))


def test_the_setup_runs_again_and_loses_no_token(path):
    """Also with the table protected by its triggers, and by the sqlite3 command as the script's head says."""
    db = open_database(path, token=9)
    db.execute("INSERT INTO accounts VALUES (1, 100)")
    assert shutil.which("sqlite3"), "the sqlite3 command is missing (Debian: apt-get install sqlite3)"
    done = subprocess.run(["sqlite3", path], input=guard_file("sqlite", "pawl.sql"), text=True, capture_output=True, timeout=30,
        check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert fences(db) == {"accounts": 9}
    refused(open_database(path, token=8), "PAWL1", "UPDATE accounts SET balance = 1")
    db.execute("UPDATE accounts SET balance = 101")


def test_the_command_says_the_error(path):
    """Broken: a script that uses the sqlite3 command can't tell that it was refused."""
    for token, status, said in ((7, 0, ""), (6, 1, "PAWL1 stale fencing token"), (7, 0, "")):
        sql = f".bail on\nBEGIN IMMEDIATE; INSERT INTO pawl_fence VALUES ('cli', {token});\nUPDATE plain SET value = 1; COMMIT;\n"
        done = subprocess.run(["sqlite3", path], input=sql, text=True, capture_output=True, timeout=30, check=False)
        assert done.returncode == status and said in done.stderr, done


def test_a_guarded_table_takes_no_write_without_a_token(path):
    """Broken: one of the ways to write in SQLite is a way around the fence, or one with OR IGNORE leaves the fence where it was."""
    owner, bare = open_database(path, token=50), open_database(path)
    owner.execute("INSERT INTO accounts VALUES (1, 100)")
    writes = (
        "INSERT INTO accounts VALUES (2, 1)",
        "INSERT OR IGNORE INTO accounts VALUES (1, 1)",
        "INSERT OR REPLACE INTO accounts VALUES (1, 1)",
        "INSERT INTO accounts VALUES (1, 1) ON CONFLICT DO NOTHING",
        "INSERT INTO accounts VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET balance = 1",
        "INSERT INTO accounts SELECT id + 1000, 1 FROM accounts",
        "UPDATE accounts SET balance = 1",
        "UPDATE OR IGNORE accounts SET balance = 1",
        "UPDATE OR REPLACE accounts SET balance = 1 WHERE id = 1",
        "DELETE FROM accounts WHERE id = 1",
        "DELETE FROM accounts",
    )
    for i, write in enumerate(writes):
        refused(bare, "no such function: pawl_token", write)
        refused(open_database(path, token=49), "PAWL1", write)
        refused(open_database(path, token="x"), "PAWL2", write)
        db = open_database(path, token=51 + i)
        db.execute("BEGIN IMMEDIATE")
        db.execute(write)
        assert fences(db) == {"accounts": 51 + i}, write
        db.execute("ROLLBACK")
        db.close()
    assert owner.execute("SELECT * FROM accounts").fetchall() == [(1, 100)]
    assert bare.execute("SELECT * FROM accounts").fetchall() == [(1, 100)]


def test_a_stale_connection_is_refused_after_a_fresh_one_with_the_same_statements(path):
    """The scenario of the mission in the trigger form: statements that know nothing of tokens."""
    old, new = open_database(path, token=60), open_database(path, token=61)
    old.execute("INSERT INTO accounts VALUES (1, 100)")
    new.execute("UPDATE accounts SET balance = balance + 50")
    refused(old, "PAWL1", "UPDATE accounts SET balance = 110")
    new.execute("UPDATE accounts SET balance = balance + 1")
    assert new.execute("SELECT balance FROM accounts").fetchone() == (151,)


def test_a_fresh_claim_keeps_others_out_until_it_ends(path):
    """Broken: somebody writes between a claim and its commit."""
    old, new = open_database(path, timeout_s=0), open_database(path, timeout_s=0)
    new.execute("BEGIN")
    new.execute(CLAIM, ("a", 6))
    refused(old, "database is locked", CLAIM, ("a", 5))
    new.execute("ROLLBACK")
    old.execute("BEGIN")
    old.execute(CLAIM, ("a", 5))
    refused(new, "database is locked", CLAIM, ("a", 6))
    old.execute("COMMIT")
    new.execute(CLAIM, ("a", 6))
    refused(old, "PAWL1", CLAIM, ("a", 5))


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_two_writers_in_every_order_of_their_steps(path, begin):
    """Broken: some order of two transactions lets the stale write in after the fresh one, or loses a write, or refuses the fresh one. The
    first step reads, so that a transaction can begin with an old picture; what SQLite says is busy is run again."""
    admin = open_database(path)
    sessions = [open_database(path, timeout_s=0) for _ in range(2)]
    for number, places in enumerate(itertools.combinations(range(8), 4)):
        name = f"order/{number}"
        admin.execute("INSERT INTO plain VALUES (?, 0)", (name,))
        at, refusals = [0, 0], [False, False]

        def step(who):
            db, token = sessions[who], 5 + who
            if at[who] == 4 or refusals[who]:
                return
            try:
                if at[who] == 0:
                    db.execute(begin)
                    db.execute("SELECT value FROM plain WHERE resource = ?", (name,)).fetchall()
                elif at[who] == 1:
                    db.execute(CLAIM, (name, token))
                elif at[who] == 2:
                    db.execute("UPDATE plain SET value = value + 1 WHERE resource = ?", (name,))
                    db.execute("INSERT INTO journal (resource, token) VALUES (?, ?)", (name, token))
                else:
                    db.execute("COMMIT")
                at[who] += 1
            except sqlite3.OperationalError as error:
                assert "locked" in str(error), error
                if db.in_transaction:
                    db.execute("ROLLBACK")
                at[who] = 0
            except sqlite3.IntegrityError as error:
                assert str(error) == "PAWL1 stale fencing token" and who == 0
                db.execute("ROLLBACK")
                refusals[0] = True

        for i in range(8):
            step(0 if i in places else 1)
        for who in itertools.islice(itertools.cycle((0, 0, 0, 0, 0, 1, 1, 1, 1, 1)), 40):
            step(who)
        assert at[1] == 4 and (at[0] == 4 or refusals[0]), places
        written = [row[0] for row in admin.execute("SELECT token FROM journal WHERE resource = ? ORDER BY number", (name,))]
        assert written == ([6] if refusals[0] else [5, 6]), places
        assert admin.execute("SELECT value FROM plain WHERE resource = ?", (name,)).fetchone()[0] == len(written)
        assert fences(admin)[name] == 6


def test_racing_rounds(path):
    """500 rounds of two writers at once, in connections and threads of their own; every tenth round is the first use of its resource."""
    admin = open_database(path)
    admin.execute("PRAGMA synchronous = OFF")
    names = [f"race/{i // 10}" for i in range(ROUNDS)]
    with admin:
        admin.executemany("INSERT OR IGNORE INTO plain VALUES (?, 0)", [(name,) for name in names])
    barrier = threading.Barrier(2)
    outcomes, problems = [], []

    def go(index):
        try:
            db = open_database(path)
            db.execute("PRAGMA synchronous = OFF")
            for i, name in enumerate(names):
                token = 100 + 2 * i + (index + i) % 2
                barrier.wait(60)
                db.execute("BEGIN IMMEDIATE")
                try:
                    db.execute(CLAIM, (name, token))
                    value = db.execute("SELECT value FROM plain WHERE resource = ?", (name,)).fetchone()[0]
                    db.execute("UPDATE plain SET value = ? WHERE resource = ?", (value + 1, name))
                    db.execute("INSERT INTO journal (resource, token) VALUES (?, ?)", (name, token))
                    db.execute("COMMIT")
                    outcomes.append((name, token, True))
                except sqlite3.IntegrityError as error:
                    assert str(error) == "PAWL1 stale fencing token"
                    db.execute("ROLLBACK")
                    outcomes.append((name, token, False))
            db.close()
        except BaseException as error:  # the other thread must not wait for ever
            problems.append(repr(error))
            barrier.abort()

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(outcomes) == 2 * ROUNDS
    assert all(taken for _, token, taken in outcomes if token % 2), "a fresh write was refused"
    for name in set(names):
        written = [row[0] for row in admin.execute("SELECT token FROM journal WHERE resource = ? ORDER BY number", (name,))]
        assert written == sorted(written)
        assert sorted(token for n, token, taken in outcomes if taken and n == name) == written
        assert admin.execute("SELECT value FROM plain WHERE resource = ?", (name,)).fetchone()[0] == len(written)
        assert fences(admin)[name] == written[-1]


CRASHER = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.create_function("pawl_token", 0, lambda: int(sys.argv[2]))
db.execute("PRAGMA cache_size = 5")  # changes go to the file before the commit
db.execute("BEGIN IMMEDIATE")
db.executemany("INSERT INTO accounts VALUES (?, 1)", [(i,) for i in range(1000, 9000)])
if sys.argv[3] == "commit":
    db.execute("COMMIT")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_dies_in_mid_transaction_leaves_nothing(path):
    """Broken: the claim of a transaction that never was refuses the holder before it; or one that was is forgotten."""
    for token, end, rows, fence in ((7, "crash", 0, {}), (5, "commit", 8000, {"accounts": 5})):
        done = subprocess.run([sys.executable, "-c", CRASHER, path, str(token), end], timeout=60, check=False)
        assert done.returncode == -9
        db = open_database(path)
        assert db.execute("SELECT count(*) FROM accounts").fetchone() == (rows,)
        assert fences(db) == fence
        db.close()
    refused(open_database(path, token=4), "PAWL1", "DELETE FROM accounts")


def test_the_row_form_of_the_example(path):
    """The names that protect-table.sql gives for a lock of each row: a row that changes its id needs both."""
    db = open_database(path)
    db.executescript("""
        CREATE TABLE shares (id INTEGER PRIMARY KEY, value INTEGER);
        CREATE TRIGGER s1 BEFORE INSERT ON shares BEGIN INSERT INTO pawl_fence VALUES ('account/' || NEW.id, pawl_token()); END;
        CREATE TRIGGER s2 BEFORE UPDATE ON shares BEGIN
            INSERT INTO pawl_fence VALUES ('account/' || OLD.id, pawl_token());
            INSERT INTO pawl_fence VALUES ('account/' || NEW.id, pawl_token());
        END;
        CREATE TRIGGER s3 BEFORE DELETE ON shares BEGIN INSERT INTO pawl_fence VALUES ('account/' || OLD.id, pawl_token()); END;
    """)
    open_database(path, token=10).execute("INSERT INTO shares VALUES (1, 0)")
    open_database(path, token=30).execute("INSERT INTO shares VALUES (2, 0)")
    middle = open_database(path, token=20)
    middle.execute("UPDATE shares SET value = 1 WHERE id = 1")
    for write in ("UPDATE shares SET value = 1", "UPDATE shares SET id = 3 WHERE id = 2", "DELETE FROM shares WHERE id = 2",
        "INSERT INTO shares VALUES (2, 1)"):
        refused(middle, "PAWL1", write)
    middle.execute("UPDATE shares SET id = 3 WHERE id = 1")
    assert fences(db) == {"account/1": 20, "account/2": 30, "account/3": 20}


def test_a_claim_finds_its_row_by_the_key(path):
    """Broken: each write reads all fences."""
    db = open_database(path)
    for statement in ("SELECT 1 FROM pawl_fences WHERE resource = 'r' AND token > 1",
        "UPDATE pawl_fences SET token = 2 WHERE resource = 'r' AND token < 2"):
        plan = " ".join(str(row) for row in db.execute("EXPLAIN QUERY PLAN " + statement))
        assert "SEARCH" in plan and "SCAN" not in plan, plan


def test_what_the_readme_says_to_type(tmp_path, monkeypatch):
    """Also protect-table.sql as it is."""
    monkeypatch.chdir(tmp_path)
    (statement_form,), (python,) = readme_blocks("sqlite", "sql"), readme_blocks("sqlite", "python")
    owner = open_database("my.db")
    owner.executescript(guard_file("sqlite", "pawl.sql"))
    owner.executescript("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL); INSERT INTO accounts VALUES (17, 100);"
        + statement_form)
    owner.executescript(guard_file("sqlite", "protect-table.sql"))
    token = fences(owner)["accounts"]
    exec(python, {"sqlite3": sqlite3, "lease": {"token": token}})  # what is tested is the text of our own README
    assert owner.execute("SELECT balance FROM accounts").fetchone() == (170,)
    with pytest.raises(sqlite3.IntegrityError, match="^PAWL1 stale fencing token$"):
        exec(python, {"sqlite3": sqlite3, "lease": {"token": token - 1}})
