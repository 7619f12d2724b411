#!/usr/bin/env python3
"""A lock of pawl in Python 3, standard library only.

    with locked("report", ttl_ms=30_000, wait_ms=60_000) as lease:
        ...                     # lease.token goes with every write to a store that checks it
        lease.check()           # between steps: raises LeaseLost once it is time to stop

What is promised. Work is told to stop a quarter of the ttl before the lease can end, by a clock that is read
before each request is sent and goes on while the machine is suspended. Work that hasn't stopped a sixth of
the ttl later is ended with its process: Python can't end a thread. Nobody can stop a process that is stopped
itself, so the database must check the token; `guarded` does it for SQLite.

As a program: pawl_lock.py LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock, 115
pawld gave no good answer.
PAWL_SERVER: where pawld is, http://HOST:PORT or unix:/PATH; http://127.0.0.1:7295 unless set.
PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.
"""

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

SERVER = os.environ.get("PAWL_SERVER", "http://127.0.0.1:7295")
PATIENCE_S = 10  # how long to go on asking, beyond the wait, when there is no good answer
BACK_OFF_S, BACK_OFF_CAP_S = 0.1, 2


class Held(Exception):
    """Somebody else has the lock, also after the wait."""


class Unavailable(Exception):
    """pawld gave no good answer."""


class LeaseLost(Exception):
    """Stop: the lease is lost, or will end before the next answer may come."""


def now():
    """Seconds on a clock that nobody sets and that goes on through suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---------------------------------------------------------------- one call


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def call(lock, verb, params, timeout_s):
    """(status, reply, seconds of Retry-After); status 0 and why if there was no answer: what became of the request isn't known."""
    url = urlsplit(SERVER)
    if url.scheme == "unix":
        connection = UnixConnection(url.path, timeout_s)
    else:
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=timeout_s)
    try:
        connection.request("POST", f"/v1/locks/{quote(lock, safe='/')}/{verb}", json.dumps(params), access())
        response = connection.getresponse()
        wait = response.getheader("Retry-After", "")
        reply = json.loads(response.read())
        return response.status, reply if isinstance(reply, dict) else {}, min(int(wait), PATIENCE_S) if wait.isdigit() else 0
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, {"message": str(error) or type(error).__name__}, 0
    finally:
        connection.close()


def access():
    path = os.environ.get("PAWL_TOKEN_FILE")
    if not path:
        return {}
    with open(path, encoding="ascii") as file:
        return {"Authorization": "Bearer " + file.read().strip()}


def worth_repeating(status):
    return status in (0, 408, 429) or status >= 500


# ---------------------------------------------------------------- a lease


def acquire(lock, ttl_ms, wait_ms):
    """A Lease that nobody renews yet. The lease id is made once: with it, every repetition means the same lease and the
    same place in the queue."""
    lease = Lease(lock, str(uuid.uuid4()), ttl_ms)
    begun = now()
    pause = BACK_OFF_S
    try:
        while True:
            sent = now()
            left_ms = max(0, wait_ms - int((sent - begun) * 1000))
            asked = {"lease_id": lease.id, "ttl_ms": ttl_ms, "wait_ms": left_ms, "owner": f"{socket.gethostname()}:{os.getpid()}"}
            status, reply, retry_after = call(lock, "acquire", asked, left_ms / 1000 + 5)
            if status == 200:
                lease.token = reply["token"]
                lease.deadline = sent + reply.get("ttl_ms", 0) / 1000
            elif status == 409:
                raise Held(f"{lock} is held by {(reply.get('holder') or {}).get('owner', 'somebody')}")
            elif not worth_repeating(status):
                raise Unavailable(f"pawld refuses: {status} {reply.get('message', '')}")
            # A grant that came after a wait is counted from before the wait, so it is renewed first, which
            # tells a deadline to work with.
            if status == 200 and (now() < sent + lease.ttl / 3 or lease.renew(5)[0]):
                return lease
            if now() > begun + wait_ms / 1000 + PATIENCE_S:
                raise Unavailable(f"no good answer from {SERVER}: {status} {reply.get('message', '')}")
            time.sleep(max(retry_after, pause * random.uniform(0.5, 1)))
            pause = min(pause * 2, BACK_OFF_CAP_S)
    except Held:
        raise
    except BaseException:  # also a signal: what may have been granted is given back
        lease.deadline = now() + 1
        lease.release()
        raise


class Lease:
    """token: goes with every write. lost: an Event, set when the work has to stop."""

    def __init__(self, lock, lease_id, ttl_ms):
        self.lock, self.id, self.ttl_ms, self.ttl = lock, lease_id, ttl_ms, ttl_ms / 1000
        self.token = None
        self.deadline = 0.0  # the lease can't have ended before
        self.lost = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def check(self):
        """Between steps of the work."""
        if self.lost.is_set() or now() >= self._stop_at():
            raise LeaseLost(f"the lease on {self.lock} is lost")

    def sleep(self, seconds):
        """A sleep that ends when the lease is lost."""
        self.lost.wait(seconds)
        self.check()

    def renew(self, timeout_s):
        """(has the lease a new deadline?, seconds of Retry-After); sets `lost` when pawld says that it is."""
        sent = now()
        status, reply, retry_after = call(self.lock, "renew", {"lease_id": self.id, "ttl_ms": self.ttl_ms}, timeout_s)
        if status == 200:
            self.deadline = sent + reply.get("ttl_ms", 0) / 1000
        elif status == 410:
            self.lost.set()
        return status == 200, retry_after

    def release(self):
        """As often as it makes sense; a lease that can't be released ends by itself."""
        end = min(self.deadline, now() + 5)
        pause = BACK_OFF_S
        while now() < end:
            status, _, retry_after = call(self.lock, "release", {"lease_id": self.id}, max(0.1, end - now()))
            if status in (200, 410) or self.lost.is_set():
                return
            time.sleep(max(0, min(max(retry_after, pause), end - now())))
            pause = min(pause * 2, BACK_OFF_CAP_S)

    def start(self):
        self._thread.start()

    def stop(self):
        """Ends the keep-alive, then the lease."""
        self._done.set()
        self._thread.join(self.ttl)
        self.release()

    def _stop_at(self):
        return self.deadline - self.ttl / 4

    def _keep_alive(self):
        pause = BACK_OFF_S
        due = self.deadline - self.ttl * 2 / 3
        while not self._done.wait(max(0, min(due, self._stop_at()) - now())):
            left = self._stop_at() - now()
            if left <= 0 or self.lost.is_set():
                break
            renewed, retry_after = self.renew(max(0.1, left / 3))  # one answer that never comes must not use up all the time
            if renewed:
                pause = BACK_OFF_S
                due = self.deadline - self.ttl * 2 / 3
            else:
                due = now() + max(min(retry_after, left / 3), pause * random.uniform(0.5, 1))
                pause = min(pause * 2, BACK_OFF_CAP_S)
            if self.lost.is_set():
                break
        else:
            return
        self.lost.set()
        if not self._done.wait(self.ttl / 6):
            print(f"the lease on {self.lock} is lost and the work goes on: ending the process", file=sys.stderr, flush=True)
            os._exit(113)


@contextmanager
def locked(lock, ttl_ms, wait_ms):
    lease = acquire(lock, ttl_ms, wait_ms)
    try:
        lease.start()
        yield lease
    finally:
        lease.stop()


# ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)


@contextmanager
def guarded(db, lease):
    """A transaction that is refused once a later holder has written."""
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO pawl_fence (resource, token) VALUES (?, ?)", (lease.lock, lease.token))
        yield
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        if "PAWL1" in str(error):
            raise LeaseLost(f"refused by the database: {error}") from error
        raise


def count(lease, database, steps, pause_s):
    """Reads a number, thinks about it, writes the next one: between the two, nobody else may."""
    db = sqlite3.connect(database, timeout=20, isolation_level=None)
    for _ in range(steps):
        lease.check()
        with guarded(db, lease):
            (value,) = db.execute("SELECT value FROM tally WHERE name = ?", (lease.lock,)).fetchone()
        lease.sleep(pause_s)
        with guarded(db, lease):
            db.execute("UPDATE tally SET value = ? WHERE name = ?", (value + 1, lease.lock))


def main():
    if len(sys.argv) != 7:
        print("usage: pawl_lock.py LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS", file=sys.stderr)
        return 125
    lock, ttl_ms, wait_ms, database, steps, pause_ms = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an exception, so that the lock is released
    try:
        with locked(lock, int(ttl_ms), int(wait_ms)) as lease:
            count(lease, database, int(steps), int(pause_ms) / 1000)
        return 0
    except (LeaseLost, Held, Unavailable, sqlite3.Error) as error:
        print(f"pawl_lock.py: {error}", file=sys.stderr)
        return {LeaseLost: 113, Held: 114, Unavailable: 115}.get(type(error), 1)


if __name__ == "__main__":
    sys.exit(main())
