"""What pawl is for, from end to end: a real pawld, a real database, a real SIGSTOP.

Worker 1 takes the lock and is stopped past its time to live. Worker 2 waits for the lock, gets it and writes. Worker 1 goes on, believes
that it holds the lock, and writes: the database refuses it. Done with each guard in each of its forms, and shown by the demo.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from databases import GUARDS, MariadbServer, PostgresServer, guard_file
from pawltest.wait import until

TTL_MS = 700


class Worker:
    def __init__(self, **job):
        argv = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py"), json.dumps(job)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def heard(self):
        line = self.child.stdout.readline()
        assert line, f"the worker ended with {self.child.wait()}"
        return json.loads(line)

    def go(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def sigstop(self):
        os.kill(self.child.pid, signal.SIGSTOP)
        until(self._stopped, what="the worker stopped")

    def _stopped(self):
        with open(f"/proc/{self.child.pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"

    def sigcont(self):
        os.kill(self.child.pid, signal.SIGCONT)

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture
def workers():
    started = []

    def start(**job):
        started.append(Worker(**job))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


@pytest.fixture
def database():
    """Starts a server for one test, with its guard and a table `accounts` that is protected, which holds the row (1, 100, '')."""
    started = []

    def start(kind, folder):
        columns = "id integer primary key, balance integer not null, writer varchar(20) not null"
        create = f"CREATE TABLE accounts ({columns}); INSERT INTO accounts VALUES (1, 100, '');\n"
        if kind == "sqlite":
            path = os.path.join(folder, "test.db")
            subprocess.run(["sqlite3", path], input=guard_file("sqlite", "pawl.sql") + create, text=True, check=True, timeout=60)
            return ["sqlite3", "-bail", path]
        server = {"postgresql": PostgresServer, "mysql": MariadbServer}[kind]
        if server.missing():
            pytest.skip(server.missing())
        started.append(server())
        started[0].start().script(guard_file(kind, "pawl.sql"))
        started[0].script(create + guard_file(kind, "protect-table.sql"))
        argv = started[0].client_argv(stop=True)
        return argv + (["test"] if kind == "mysql" else [])

    yield start
    for server in started:
        server.close()


# One transaction for each form: what a worker runs.
FORMS = {
    "postgresql": {
        "fence": "BEGIN; SELECT pawl.fence('accounts', @TOKEN@); UPDATE accounts SET balance = @BALANCE@, writer = '@WHO@'; COMMIT;\n",
        "trigger": "BEGIN; SET LOCAL pawl.token = @TOKEN@; UPDATE accounts SET balance = @BALANCE@, writer = '@WHO@'; COMMIT;\n",
    },
    "mysql": {
        "fence": "SET @pawl_token = @TOKEN@; START TRANSACTION; CALL pawl.fence('accounts', @TOKEN@); "
                 "UPDATE accounts SET balance = @BALANCE@, writer = '@WHO@'; COMMIT;\n",
        "trigger": "SET @pawl_token = @TOKEN@; UPDATE accounts SET balance = @BALANCE@, writer = '@WHO@';\n",
    },
    "sqlite": {
        "fence": "BEGIN IMMEDIATE; INSERT INTO pawl_fence VALUES ('accounts', @TOKEN@); "
                 "UPDATE accounts SET balance = @BALANCE@, writer = '@WHO@'; COMMIT;\n",
    },
}


def play(pawld, workers, client, write, lock):
    """The scenario. Returns what was heard of worker 1's late write, its token, and the token of worker 2."""

    def job(who, balance, wait_ms):
        text = write.replace("@BALANCE@", str(balance)).replace("@WHO@", who)
        return workers(pawld=pawld.address, lock=lock, ttl_ms=TTL_MS, wait_ms=wait_ms, client=client, write=text)

    one = job("one", 110, 0)
    first = one.heard()
    assert first["status"] == 200
    one.sigstop()
    two = job("two", 150, 30_000)
    second = two.heard()
    assert second["status"] == 200 and second["token"] > first["token"]
    two.go()
    written = two.heard()
    assert written["client"] == 0, written
    one.go()
    one.sigcont()
    late = one.heard()
    assert (late["release"], late["error"]) == (410, "lease_lost")
    return late, first["token"], second["token"]


@pytest.mark.parametrize("kind, form", [(kind, form) for kind, forms in FORMS.items() for form in forms])
def test_a_late_write_is_refused_by_the_database(pawld, workers, database, name, tmp_path, kind, form):
    client = database(kind, str(tmp_path))
    late, token, _ = play(pawld, workers, client, FORMS[kind][form], name)
    assert late["client"] != 0 and "PAWL1 stale fencing token" in late["said"], late
    if kind != "sqlite":
        assert f"stale fencing token {token}: accounts has taken" in late["said"]
    done = subprocess.run(client, input="SELECT balance, writer FROM accounts;\n", text=True, stdout=subprocess.PIPE, timeout=60,
        check=True)
    assert done.stdout.split() in (["150", "two"], ["150|two"])


def test_a_late_write_is_refused_by_redis(world, pawld, workers, name):
    store = world.redis()
    store.command("FUNCTION", "LOAD", guard_file("redis", "pawl.lua"))
    store.command("SET", "balance", "100")
    client = ["redis-cli", "-h", store.host, "-p", str(store.port)]  # whose exit status tells nothing of errors
    late, token, _ = play(pawld, workers, client, "FCALL pawl_write 2 fence:accounts balance @TOKEN@ 3 SET balance @BALANCE@\n", name)
    assert f"PAWL1 stale fencing token {token}: fence:accounts has taken" in late["said"], late
    assert store.command("GET", "balance") == "150"


def run_demo(*options):
    argv = [sys.executable, os.path.join(GUARDS, "demo", "demo.py"), "--pawld", os.environ["PAWLD"], *options]
    return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)


def check_demo(done):
    """The transcript holds the three endings, and the late write of the third is refused."""
    assert done.returncode == 0, done.stdout
    acts = done.stdout.split("\n\n")
    endings = [line.strip() for line in acts if "The balance is" in line]
    assert [ending.partition(":")[0] for ending in endings] == [
        "The balance is 110 and should be 160", "The balance is 160 and should be 165", "The balance is 160, as it should be"], done.stdout
    lines = [line for line in done.stdout.splitlines() if "REFUSED" in line]
    assert len(lines) == 1 and "worker 1" in lines[0] and "PAWL1 stale fencing token" in lines[0], done.stdout


def test_the_demo():
    check_demo(run_demo())


def test_the_demo_on_postgresql():
    if PostgresServer.missing():
        pytest.skip(PostgresServer.missing())
    server = PostgresServer()
    try:
        server.start()
        check_demo(run_demo("--postgresql", f"host={server.socket_folder} user=pawltest dbname=postgres"))
    finally:
        server.close()
