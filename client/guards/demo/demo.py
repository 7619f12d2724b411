#!/usr/bin/env python3
"""The late write, three times: what becomes of it with two common locks on Redis, and with pawl and a guard in the database.

    ./dev demo                              SQLite in a temporary file
    ./dev demo --postgresql CONNINFO        a PostgreSQL of yours; makes and drops the table pawl_demo, leaves the schema pawl

An account holds 100. Workers, which are processes of their own, take a lock, read the balance, and write back the sum of it and their
amount. One of them is stopped (SIGSTOP) at a bad moment for longer than its lock lives, as by a long pause of its runtime or of its
machine, and goes on later without knowing. This needs Python's standard library, a redis-server, a built pawld (PAWLD, else build/pawld),
and for PostgreSQL psql. Everything runs in a temporary folder on unix sockets. Exit status: 0 if the two naive locks lost a write and
pawl lost none, 1 otherwise.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
TTL_MS = 1000
PATIENCE_S = 30


# ---------------------------------------------------------------- the store that the lock is for


class Refused(Exception):
    """The guard has refused the token."""


class Sqlite:
    def __init__(self, path):
        self.path = path
        self.db = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)

    def set_up(self):
        with open(os.path.join(HERE, "..", "sqlite", "pawl.sql"), encoding="utf-8") as f:
            self.db.executescript(f.read())
        self.db.execute("CREATE TABLE pawl_demo (balance INTEGER NOT NULL)")
        self.db.execute("INSERT INTO pawl_demo VALUES (100)")

    def reset(self):
        self.db.execute("UPDATE pawl_demo SET balance = 100")

    def tear_down(self):
        self.db.close()

    def spec(self):
        return "sqlite:" + self.path

    def read(self):
        return self.db.execute("SELECT balance FROM pawl_demo").fetchone()[0]

    def write(self, balance=None, token=None):
        """One transaction: claims with the token, if there is one, and writes, if there is something to write."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if token is not None:
                self.db.execute("INSERT INTO pawl_fence (resource, token) VALUES ('pawl_demo', ?)", (token,))
            if balance is not None:
                self.db.execute("UPDATE pawl_demo SET balance = ?", (balance,))
            self.db.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            self.db.execute("ROLLBACK")
            raise Refused(str(error)) from error


class Postgresql:
    """Through psql, one call for each transaction."""

    def __init__(self, conninfo):
        self.conninfo = conninfo

    def _run(self, sql):
        argv = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo, "-f", "-"]
        done = subprocess.run(argv, input="SET client_min_messages = warning;\n" + sql, text=True, capture_output=True,
            timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            first = (done.stderr.strip().splitlines() or ["psql failed"])[0]
            if "PAWL1" in first:
                raise Refused(first[first.index("PAWL1"):])
            raise SystemExit(f"demo: psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def set_up(self):
        with open(os.path.join(HERE, "..", "postgresql", "pawl.sql"), encoding="utf-8") as f:
            self._run(f.read())
        self._run("CREATE TABLE pawl_demo (balance int NOT NULL); INSERT INTO pawl_demo VALUES (100);"
            "DELETE FROM pawl.fences WHERE resource = 'pawl_demo';")

    def reset(self):
        self._run("UPDATE pawl_demo SET balance = 100;")

    def tear_down(self):
        self._run("DROP TABLE IF EXISTS pawl_demo; DELETE FROM pawl.fences WHERE resource = 'pawl_demo';")

    def spec(self):
        return "postgresql:" + self.conninfo

    def read(self):
        return int(self._run("SELECT balance FROM pawl_demo;"))

    def write(self, balance=None, token=None):
        sql = "BEGIN;\n"
        if token is not None:
            sql += f"SELECT FROM pawl.fence('pawl_demo', {token});\n"
        if balance is not None:
            sql += f"UPDATE pawl_demo SET balance = {balance};\n"
        self._run(sql + "COMMIT;")


def store_of(spec):
    kind, _, where = spec.partition(":")
    return Sqlite(where) if kind == "sqlite" else Postgresql(where)


# ---------------------------------------------------------------- the locks


def redis_command(path, *words):
    """One command to Redis; the reply as a text, None for nil."""
    raw = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in (str(w).encode() for w in words))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(path)
        sock.sendall(b"*%d\r\n" % len(words) + raw)
        with sock.makefile("rb") as replies:
            line = replies.readline().rstrip()
            if line[:1] == b"$" and line != b"$-1":
                return replies.readline().rstrip().decode()
            return None if line == b"$-1" else line[1:].decode()


DELETE_IF_MINE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class SetNx:
    """SET lock OWNER NX PX: there is no token. Gives up by comparing the owner first, or just by DEL."""

    def __init__(self, path, owner, compare):
        self.path, self.owner, self.compare = path, owner, compare

    def take(self):
        while redis_command(self.path, "SET", "lock", self.owner, "NX", "PX", TTL_MS) is None:
            time.sleep(0.02)
        return None, f"SET lock {self.owner} NX PX {TTL_MS}"

    def give_up(self):
        if self.compare:
            mine = redis_command(self.path, "EVAL", DELETE_IF_MINE, 1, "lock", self.owner) == "1"
            return "gives the lock up" if mine else "finds that the lock isn't its own any more, after the write"
        redis_command(self.path, "DEL", "lock")
        return "gives the lock up: DEL lock"


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S + 5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Pawl:
    def __init__(self, path, owner):
        self.path, self.owner, self.lease_id = path, owner, None

    def call(self, verb, body):
        conn = UnixHttp(self.path)
        conn.request("POST", f"/v1/locks/demo/{verb}", json.dumps(body))
        reply = conn.getresponse()
        value = json.loads(reply.read())
        conn.close()
        return reply.status, value

    def take(self):
        self.lease_id = str(uuid.uuid4())
        wanted = {"lease_id": self.lease_id, "ttl_ms": TTL_MS, "wait_ms": PATIENCE_S * 1000, "owner": self.owner}
        status, lease = self.call("acquire", wanted)
        while status == 503:  # the outcome isn't known: the same again
            time.sleep(0.05)
            status, lease = self.call("acquire", wanted)
        if status != 200:
            raise SystemExit(f"demo: acquire: {status} {lease}")
        return lease["token"], f"token {lease['token']}"

    def give_up(self):
        status, reply = self.call("release", {"lease_id": self.lease_id})
        return "gives the lock up" if status == 200 else f"gives the lock up: {status} {reply['error']}"


# ---------------------------------------------------------------- a worker


def worker(name, kind, lock_path, store, amount, gates):
    """Says what it does, one JSON string a line. Before each step in `gates` it waits for a line on its input: that is where the stage
    stops it."""
    lock = Pawl(lock_path, name) if kind == "pawl" else SetNx(lock_path, name, kind == "setnx")
    store = store_of(store)

    def say(text):
        print(json.dumps(text), flush=True)

    def gate(step):
        if step in gates:
            sys.stdin.readline()
            gates.remove(step)

    while True:
        token, how = lock.take()
        say(f"takes the lock ({how})")
        if token is not None:
            store.write(token=token)  # claims before it reads: from here on nobody older can write
        balance = store.read()
        say(f"reads {balance}, will write {balance + amount}")
        gate("write")
        try:
            store.write(balance + amount, token)
            say(f"writes {balance + amount}")
        except Refused as error:
            say(f"writes {balance + amount}: REFUSED by the database: {error}")
            say(lock.give_up())
            continue  # from the start: the balance is another one by now
        gate("give up")
        say(lock.give_up())
        return


# ---------------------------------------------------------------- the stage


class Stage:
    def __init__(self, options):
        self.folder = tempfile.mkdtemp(prefix="pawl-demo-")
        self.redis_path = os.path.join(self.folder, "redis.sock")
        self.pawld_path = os.path.join(self.folder, "pawld.sock")
        self.children = []
        self.store = None
        self.options = options
        self.began = time.monotonic()

    def start(self):
        self.store = Postgresql(self.options.postgresql) if self.options.postgresql else Sqlite(os.path.join(self.folder, "demo.db"))
        self._serve(["redis-server", "--port", "0", "--unixsocket", self.redis_path, "--save", "", "--appendonly", "no", "--dir",
            self.folder], self.redis_path)
        # No recovery window: a fresh Redis has nothing to recover. The log is kept out of the transcript.
        self._serve([self.options.pawld, "--listen", "unix:" + self.pawld_path, "--redis", "unix://" + self.redis_path,
            "--recovery-window", "0"], self.pawld_path)
        self.store.set_up()

    def _serve(self, argv, path):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            try:
                # what stands in the environment for pawld of some other purpose is not for this one
                env = {key: value for key, value in os.environ.items() if not key.startswith("PAWL_")}
                child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
            except OSError as error:
                raise SystemExit(f"demo: {argv[0]}: {error.strerror}") from error
        self.children.append(child)
        self._until(lambda: os.path.exists(path) or child.poll() is not None, f"{argv[0]} to listen")
        if child.poll() is not None:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                raise SystemExit(f"demo: {argv[0]} ended at once:\n{log.read()[-2000:]}")

    @staticmethod
    def _until(condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"demo: waited {PATIENCE_S} s in vain for {what}")
            time.sleep(0.005)

    def close(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        if self.store:
            self.store.tear_down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def act(self, title):
        print(f"\n{title}\n")
        redis_command(self.redis_path, "DEL", "lock")
        self.store.reset()
        self.began = time.monotonic()

    def tell(self, who, what):
        print(f"  {time.monotonic() - self.began:6.2f} s  {who:<9} {what}", flush=True)

    def worker(self, name, kind, amount, *gates):
        lock_path = self.pawld_path if kind == "pawl" else self.redis_path
        argv = [sys.executable, os.path.abspath(__file__), "--worker",
            json.dumps([name, kind, lock_path, self.store.spec(), amount, gates])]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        child.who = name
        return child

    def hear(self, child, lines=1):
        for _ in range(lines):
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"demo: {child.who} ended with {child.wait()}")
            self.tell(child.who, json.loads(line))

    def hear_out(self, child):
        for line in child.stdout:
            self.tell(child.who, json.loads(line))
        if child.wait(PATIENCE_S) != 0:
            raise SystemExit(f"demo: {child.who} ended with {child.returncode}")

    def stop(self, child):
        child.send_signal(signal.SIGSTOP)
        self._until(lambda: self._state(child) == "T", "a process to stop")
        self.tell("", f"{child.who} is stopped (SIGSTOP)")

    @staticmethod
    def _state(child):
        with open(f"/proc/{child.pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]

    def wake(self, child):
        """It finds the gate open and its clock further on than it thinks."""
        self.let(child)
        self.tell("", f"{child.who} goes on (SIGCONT)")
        child.send_signal(signal.SIGCONT)

    @staticmethod
    def let(child):
        child.stdin.write("\n")
        child.stdin.flush()

    def verdict(self, wanted):
        balance = self.store.read()
        if balance == wanted:
            print(f"\n  The balance is {balance}, as it should be: no write was lost.")
        else:
            print(f"\n  The balance is {balance} and should be {wanted}: a write was lost, and nobody was told.")
        return balance == wanted


def set_nx(stage):
    stage.act("1. SET NX with a time to live. Giving up compares the owner.")
    one = stage.worker("worker 1", "setnx", 10, "write")
    stage.hear(one, 2)
    stage.stop(one)
    two = stage.worker("worker 2", "setnx", 50)
    stage.hear_out(two)
    stage.wake(one)
    stage.hear_out(one)
    return stage.verdict(160)


def bare_del(stage):
    stage.act("2. SET NX with a time to live. Giving up is DEL, without a look at the owner.")
    one = stage.worker("worker 1", "del", 10, "give up")
    stage.hear(one, 3)
    stage.stop(one)
    two = stage.worker("worker 2", "del", 50, "write")
    stage.hear(two, 2)
    stage.wake(one)
    stage.hear_out(one)
    stage.tell("", "that was the lock of worker 2, which is still at work and in time")
    three = stage.worker("worker 3", "del", 5)
    stage.hear_out(three)
    stage.let(two)
    stage.hear_out(two)
    return stage.verdict(165)


def pawl(stage):
    stage.act("3. pawl, and its guard in the database.")
    one = stage.worker("worker 1", "pawl", 10, "write")
    stage.hear(one, 2)
    stage.stop(one)
    two = stage.worker("worker 2", "pawl", 50)
    stage.hear_out(two)
    stage.wake(one)
    stage.hear_out(one)
    return stage.verdict(160)


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description="The late write, with two naive locks and with pawl.")
    parser.add_argument("--postgresql", metavar="CONNINFO", help="write to this PostgreSQL instead of to SQLite")
    parser.add_argument("--pawld", default=os.environ.get("PAWLD", "build/pawld"), help="the daemon (PAWLD, else build/pawld)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*json.loads(options.worker))
        return 0
    stage = Stage(options)
    try:
        stage.start()
        kept = [act(stage) for act in (set_nx, bare_del, pawl)]
    finally:
        stage.close()
    print("\nA lock alone can't help worker 1: it is over while its holder sleeps, pawl's too. It is the database that refuses, by the token\n"
        "that the lock gave out.")
    return 0 if kept == [False, False, True] else 1


if __name__ == "__main__":
    sys.exit(main())
