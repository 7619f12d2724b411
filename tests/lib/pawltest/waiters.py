"""Clients that wait for a lock: one acquire on a connection of its own whose answer comes later, and many of them at a time.

    Waiter(address, name, wait_ms=5000)    asks at once; .answer() is its one answer, .leave("close") goes away without it
    gather(waiters)                        reads answers in the order in which they come, with one thread for thousands
    standing(api, name, 3)                 polls until inspect counts so many waiters
    at_times(actions)                      runs actions at instants of a timeline, to a fraction of a millisecond
"""

import selectors
import time
import uuid

from pawltest.http import Conn, bearer, lock_path
from pawltest.wait import until

LONG_TTL = 600_000


def new_id():
    return str(uuid.uuid4())


def _unread_closes():
    with open("/proc/net/netstat", encoding="ascii") as f:
        lines = [line.split() for line in f if line.startswith("TcpExt:")]
    return int(lines[1][lines[0].index("TCPAbortOnClose")])


class Waiter:
    """One acquire that was sent. `status` and `value` are its answer once it was read, `took_s` how long that took from the sending."""

    def __init__(self, address, name, wait_ms, ttl_ms=LONG_TTL, lease_id=None, owner="waiter", conn=None, ask=True, token=None):
        self.address, self.name, self.wait_ms, self.ttl_ms = address, name, wait_ms, ttl_ms
        self.lease_id = lease_id or new_id()
        self.owner = owner
        self.headers = bearer(token)
        self.conn = conn or Conn(address)
        self.status = self.value = self.sent = self.took_s = None
        self.releasing = self.released = False
        if ask:
            self.ask()

    def ask(self):
        params = {"ttl_ms": self.ttl_ms, "wait_ms": self.wait_ms, "lease_id": self.lease_id, "owner": self.owner}
        self.sent = time.monotonic()
        self.conn.send_request("POST", lock_path(self.name, "acquire"), params, self.headers)

    def fileno(self):
        return self.conn.sock.fileno()

    def take(self):
        """Reads the answer, blocking; checks that it is this request's own."""
        assert self.status is None, "an answer is read once"
        reply = self.conn.read_reply()
        self.took_s = time.monotonic() - self.sent
        self.status, self.value = reply.status, reply.json()
        assert self.value["lease_id"] == self.lease_id, (self.name, self.lease_id, reply)
        if self.status == 200:
            assert self.value["name"] == self.name and self.value["owner"] == self.owner, reply
            assert 0 < self.value["ttl_ms"] and self.value["token"] > 0, reply
        else:
            assert self.status in (409, 429, 503), reply
            if self.status == 503:
                assert reply.headers.get("retry-after", "").isdigit(), reply
        return self

    def answer(self, deadline_s=30.0):
        """(status, value), waiting for it."""
        if self.status is None:
            self.conn.sock.settimeout(deadline_s)
            self.take()
        return self.status, self.value

    def granted(self, deadline_s=30.0):
        """The dict of an answer that has to be a grant."""
        status, value = self.answer(deadline_s)
        assert status == 200, (self.name, self.took_s, value)
        return value

    def refused(self, deadline_s=30.0):
        """The dict of an answer that has to be 409 held."""
        status, value = self.answer(deadline_s)
        assert (status, value.get("error")) == (409, "held"), (self.name, self.took_s, status, value)
        return value

    def answered(self):
        return self.conn.answered()

    @property
    def token(self):
        return self.value["token"]

    def send_release(self):
        self.releasing = True
        self.conn.send_request("POST", lock_path(self.name, "release"), {"lease_id": self.lease_id}, self.headers)

    def take_release(self):
        """(status, value) of the release that was sent."""
        reply = self.conn.read_reply()
        self.releasing = False
        value = reply.json()
        if reply.status == 200:
            self.released = True
            assert value["name"] == self.name and value["token"] == self.token, reply
        return reply.status, value

    def release(self):
        self.send_release()
        status, value = self.take_release()
        assert status == 200, value
        return value

    def leave(self, how="close"):
        """Goes away. True: surely without an answer. False: an answer may have arrived between the last look and the leaving; nobody but
        the client's kernel knows, which counts the closes of sockets with unread bytes (of the whole machine)."""
        before = _unread_closes()
        (self.conn.reset if how == "reset" else self.conn.close)()
        return _unread_closes() == before

    def close(self):
        self.conn.close()


def close_all(waiters):
    for waiter in waiters:
        waiter.close()


def gather(waiters, deadline_s=60.0, release=None, until_count=None):
    """Reads the answers of all as they come and returns the waiters in that order. release: None, "once" (who is granted gives the lock up
    at once over the same connection, and that has to work) or "until_gone" (a 503 is asked again, a lease that is lost counts).
    until_count:
    stop after so many answers; who is granted later, while the last releases are still to be answered, keeps the lock."""
    order, open_count = [], 0
    want = len(waiters) if until_count is None else until_count
    end = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for waiter in waiters:
            if waiter.status is None:
                selector.register(waiter, selectors.EVENT_READ)
                open_count += 1
        while len(order) < want or any(w.releasing for w in order):
            left = end - time.monotonic()
            if left <= 0:
                late = [(w.name, w.lease_id, "release" if w.releasing else "acquire") for w in waiters if w.status is None or w.releasing]
                raise AssertionError(f"{len(late)} of {len(waiters)} without an answer after {deadline_s:g} s: {late[:5]}")
            # under TLS a look at what has arrived takes it off the socket, and then no select tells of it
            taken = [w for w in waiters if w.status is None and w.conn.holds()]
            for waiter in taken or [key.fileobj for key, _ in selector.select(left)]:
                if waiter.status is None:
                    waiter.take()
                    order.append(waiter)
                    if waiter.status == 200 and release and len(order) <= want:
                        waiter.send_release()
                        continue
                else:
                    status, value = waiter.take_release()
                    if release == "until_gone" and status == 503:
                        waiter.send_release()
                        continue
                    assert status == 200 or (release == "until_gone" and status == 410), (waiter.name, status, value)
                selector.unregister(waiter)
    return order


def look(api, name, lease_id=None):
    """Inspect; with a lease id also its `position`."""
    status, value = api.call("GET", lock_path(name) + (f"?lease_id={lease_id}" if lease_id else ""))[:2]
    assert status == 200, value
    return value


def position(api, name, lease_id):
    return look(api, name, lease_id).get("position", 0)


def standing(api, name, count, deadline_s=30.0):
    """Polls until so many stand in the lock's queue. While a crowd comes or goes, Redis may have no time for this question."""

    def counted():
        status, value = api.call("GET", lock_path(name))[:2]
        assert status in (200, 503), value
        return status == 200 and value["waiters"] == count

    return until(counted, deadline_s, f"{count} waiters at {name}")


def in_line(api, waiter, place, deadline_s=30.0):
    """Polls until this waiter has this place."""
    until(lambda: position(api, waiter.name, waiter.lease_id) == place, deadline_s, f"place {place} at {waiter.name}")
    return waiter


def hold(api, name, ttl_ms=LONG_TTL, **params):
    return api.must("acquire", name, ttl_ms=ttl_ms, owner="holder", **params)


def give_up(api, name, lease_id, deadline_s=30.0):
    """Releases although the store may be away: asks until it is done or the lease turns out to be gone already."""
    until(lambda: api.release(name, lease_id=lease_id)[0] in (200, 410), deadline_s, f"{name} is given up")


def at_times(actions):
    """actions: (instant on time.monotonic(), function). Runs each at its instant, in order; spins through the last half millisecond."""
    for instant, action in sorted(actions, key=lambda pair: pair[0]):
        while True:
            left = instant - time.monotonic()
            if left <= 0:
                break
            if left > 0.0006:
                time.sleep(left - 0.0005)
        action()
