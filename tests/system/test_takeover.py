"""A new pawld takes the place of one that runs (--handover): nobody is refused and nothing is reset, on TCP and unix sockets, however the three of them are
timed. PAWL_TEST_LONG=1 makes many more rounds."""

import os
import signal
import socket
import stat
import threading
import time

import pytest

from pawltest.fixtures import LONG
from pawltest.http import Closed, Conn, lock_path
from pawltest.tls import server_arguments
from pawltest.wait import always, until
from pawltest.waiters import new_id

ROUNDS = 200 if LONG else 8
LONG_TTL = 600000


class Load(threading.Thread):
    """One client: cycles of acquire and release, each request on a connection of its own, or all on one that is made again when pawld says `Connection:
    close`. Whatever is not a proper answer to a request is in `faults`."""

    def __init__(self, address, name, keep_alive):
        super().__init__(daemon=True)
        self.address, self.lock, self.keep_alive = address, name, keep_alive
        self.ended = threading.Event()
        self.faults, self.requests, self.statuses = [], 0, set()
        self.conn = None

    def request(self, verb, params):
        if self.conn is None:
            self.conn = Conn(self.address)
        reply = self.conn.request("POST", lock_path(self.lock, verb), params, headers={} if self.keep_alive else {"Connection": "close"})
        self.requests += 1
        if reply.headers.get("connection") == "close":
            self.conn.close()
            self.conn = None
        self.statuses.add(reply.status)
        assert reply.status == 200, reply
        return reply.json()

    def run(self):
        while not self.ended.is_set():
            lease = new_id()
            try:
                self.request("acquire", {"lease_id": lease, "ttl_ms": LONG_TTL})
                self.request("release", {"lease_id": lease})
            except (OSError, Closed, AssertionError) as error:
                self.faults.append(f"{self.lock}: {error!r}")
                return

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive(), "a client hangs"
        if self.conn:
            self.conn.close()


def successor(world, redis, folder, listen, args=(), **how):
    return world.pawld(redis, ["--handover", f"{folder}/handover", "--drain-timeout", "20s", *args], listen=listen, **how)


def taken_over(pawld):
    return until(lambda: pawld.log("taken_over"), what="taken over")


@pytest.mark.deadline(1800 if LONG else 180)
@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
def test_a_takeover_under_load_refuses_and_resets_nobody(world, redis, kind):
    """Broken: connections in the old one's queue are reset when it closes, or nobody listens for a moment."""
    folder = world.folder()
    listen = {"tcp": ["127.0.0.1:0"], "unix": [f"unix:{folder}/s"], "tls": ["tls:127.0.0.1:0"]}[kind]
    args = server_arguments() if kind == "tls" else []
    pawld = successor(world, redis, folder, listen, args)
    address = pawld.address
    crowd = [Load(address, f"load/{i}", keep_alive=i % 2 == 1) for i in range(4)]
    for client in crowd:
        client.start()
    for round_ in range(ROUNDS):
        before = sum(client.requests for client in crowd)
        until(lambda: any(c.faults for c in crowd) or sum(c.requests for c in crowd) > before + 20, what="load")
        newer = successor(world, redis, folder, listen, args, wait="listening")
        assert newer.addresses() == [address]
        taken_over(newer)
        if round_ % 2:
            pawld.signal(signal.SIGTERM)  # as somebody would who doesn't know that it ends by itself
        assert pawld.wait(60) == 0
        pawld = newer
        assert not [fault for client in crowd for fault in client.faults]
    for client in crowd:
        client.end()
    assert not [fault for client in crowd for fault in client.faults]
    assert {status for client in crowd for status in client.statuses} == {200}
    assert all(client.requests > ROUNDS for client in crowd)


def test_who_waits_in_the_queue_is_served_by_the_successor(world, redis):
    """Broken: a connection that the kernel made before the change, and nobody accepted, dies with the old process."""
    folder = world.folder()
    old = successor(world, redis, folder, ["127.0.0.1:0"])
    new = successor(world, redis, folder, ["127.0.0.1:0"], wait="listening")
    taken_over(new)
    assert old.wait(30) == 0
    new.sigstop()
    queued = [Conn(new.address) for _ in range(20)]
    for i, conn in enumerate(queued):
        conn.send_request("POST", lock_path(f"queued/{i}", "acquire"))
    newest = successor(world, redis, folder, ["127.0.0.1:0"], start=False)
    threading.Timer(1.0, new.sigcont).start()
    newest.start(wait="listening")
    taken_over(newest)
    for conn in queued:
        assert conn.read_reply().status == 200
        conn.close()


def test_holders_renew_and_release_wherever_they_are(world, redis):
    """Broken: a holder loses its lease by the change; or the old one doesn't tell it to come anew."""
    folder = world.folder()
    old = successor(world, redis, folder, ["127.0.0.1:0"])
    conns = [Conn(old.address) for _ in range(3)]
    leases = []
    for i, conn in enumerate(conns):
        reply = conn.request("POST", lock_path(f"held/{i}", "acquire"), {"ttl_ms": LONG_TTL})
        assert reply.status == 200 and "connection" not in reply.headers
        leases.append(reply.json())
    new = successor(world, redis, folder, ["127.0.0.1:0"], wait="listening")
    taken_over(new)
    until(lambda: old.log("draining"), what="the old one drains")
    always(old.running, 0.3, "the old one waits for its clients")
    for verb, conn, lease in zip(("renew", "release", "acquire"), conns, leases):
        reply = conn.request("POST", lock_path(lease["name"], verb), {"lease_id": lease["lease_id"]})
        assert (reply.status, reply.headers.get("connection")) == (200, "close"), reply
        assert conn.at_eof()
        conn.close()
    assert old.wait(30) == 0
    api = new.api()
    assert api.must("renew", "held/0", lease_id=leases[0]["lease_id"])["token"] == leases[0]["token"]
    assert api.must("acquire", "held/1")["token"] > leases[1]["token"]


def test_waiters_keep_their_places(world, redis):
    """Broken: whoever waits is dropped without a word, or goes back to the end of the queue. (P6, C18)"""
    folder = world.folder()
    old = successor(world, redis, folder, ["127.0.0.1:0"])
    lease = new_id()
    old.api().must("acquire", "l", lease_id=lease, ttl_ms=LONG_TTL)
    ids = [new_id() for _ in range(3)]
    conns = []
    for n, one in enumerate(ids, 1):
        conns.append(Conn(old.address))
        conns[-1].send_request("POST", lock_path("l", "acquire"), {"lease_id": one, "wait_ms": 60000, "ttl_ms": LONG_TTL})
        until(lambda: old.api().inspect("l")[1]["waiters"] == n, what="in the queue")
    old.close_clients()
    new = successor(world, redis, folder, ["127.0.0.1:0"], wait="listening")
    taken_over(new)
    for conn in conns:
        reply = conn.read_reply()
        assert (reply.status, reply.json()["error"], reply.headers["retry-after"]) == (503, "draining", "1")
        assert reply.headers["connection"] == "close"
        conn.close()
    again = []
    for one in reversed(ids):  # they come back in the wrong order
        again.append(Conn(new.address))
        again[-1].send_request("POST", lock_path("l", "acquire"), {"lease_id": one, "wait_ms": 60000, "ttl_ms": LONG_TTL})
    until(lambda: new.api().inspect("l")[1]["waiters"] == 3, what="all are back")
    new.api().must("release", "l", lease_id=lease)
    first = again[-1].read_reply()
    assert (first.status, first.json()["lease_id"]) == (200, ids[0])
    for conn in again:
        conn.close()


def test_a_successor_that_cannot_grant_leaves_the_old_one_alone(world, redis):
    """Broken: a new version with a wrong password takes the port and grants nothing."""
    folder = world.folder()
    listen = ["127.0.0.1:0", f"unix:{folder}/s"]
    old = successor(world, redis, folder, listen)
    path = f"{folder}/own"
    bad = world.pawld("redis://127.0.0.1:1/0", ["--handover", f"{folder}/handover"], listen=[*listen, f"unix:{path}"], wait="listening")
    until(lambda: bad.log("taking_over"), what="it waits")
    for i in range(30):
        old.api().must("acquire", f"l/{i}")  # each on a connection of its own, which the new one would also see
    assert not bad.log("taken_over") and not old.log("draining")
    bad.signal(signal.SIGTERM)
    assert bad.wait(30) == 0
    until(lambda: old.log("successor_left"), what="noticed")
    assert old.api().healthz() == 200
    assert os.path.exists(f"{folder}/s") and not os.path.exists(path)  # the one is the old one's, the other was its own
    good = successor(world, redis, folder, listen, wait="listening")
    taken_over(good)
    old.close_clients()
    assert old.wait(30) == 0
    assert good.address == old.address and good.api().healthz() == 200
    good.stop()
    assert not os.path.exists(f"{folder}/s")


@pytest.mark.parametrize("how", ["kill", "term"])
def test_an_old_one_that_ends_by_itself_is_followed_at_once(world, redis, how):
    """Broken: the successor waits for a word of a process that is dead, and nobody accepts."""
    folder = world.folder()
    listen = ["127.0.0.1:0", f"unix:{folder}/s"]
    old = successor(world, redis, folder, listen)
    new = world.pawld("redis://127.0.0.1:1/0", ["--handover", f"{folder}/handover"], listen=listen, wait="listening")
    until(lambda: new.log("taking_over"), what="it waits")
    if how == "kill":
        old.kill9()
    else:
        old.signal(signal.SIGTERM)
        assert old.wait(30) == 0
    taken_over(new)
    for address in new.addresses():
        with Conn(address) as conn:
            assert conn.request("GET", "/healthz").status == 200
    assert stat.S_ISSOCK(os.stat(f"{folder}/s").st_mode) and stat.S_ISSOCK(os.stat(f"{folder}/handover").st_mode)


def test_a_path_that_is_free_a_moment_later_is_taken(world, redis):
    """Broken: a predecessor is killed, and its socket at the path is closed after that to its successor, which finds it in use and gives up: whoever comes next
    finds nobody to take over from, and all addresses in use."""
    folder = world.folder()
    listen = ["127.0.0.1:0", f"unix:{folder}/s"]
    old = successor(world, redis, folder, listen)
    new = world.pawld("redis://127.0.0.1:1/0", ["--handover", f"{folder}/handover", "--drain-timeout", "20s"], listen=listen, wait="listening")
    until(lambda: new.log("taking_over"), what="it waits")
    os.unlink(f"{folder}/handover")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as late:
        late.bind(f"{folder}/handover")
        late.listen()
        old.kill9()
        taken_over(new)
        late.settimeout(20)
        late.accept()[0].close()  # it has looked
    newest = until(lambda: start_if_possible(world, redis, folder, listen), what="somebody to take over from")
    taken_over(newest)
    assert new.wait(30) == 0 and not new.log("no_handover")


def start_if_possible(world, redis, folder, listen):
    pawld = successor(world, redis, folder, listen, wait=None)
    until(lambda: not pawld.running() or pawld.log("taking_over"), what="it has tried")
    if pawld.running():
        return pawld
    pawld.expect_exit(1)
    return None


def test_a_successor_that_took_over_and_died_is_followed_by_the_old_one(world, redis):
    """Broken: while the old one is stalled a new one takes over and is killed; then the old one wakes, believes that somebody serves, and ends. Nobody does."""
    folder = world.folder()
    listen = ["127.0.0.1:0", f"unix:{folder}/s"]
    old = successor(world, redis, folder, listen)
    proxy = world.proxy(redis.address)
    proxy.stall_answers = True
    new = successor(world, proxy.redis_url, folder, listen, wait="listening")
    until(lambda: new.log("taking_over"), what="it waits")
    old.sigstop()
    proxy.stall_answers = False
    taken_over(new)
    new.kill9()
    old.sigcont()
    until(lambda: old.log("successor_left"), what="noticed")
    assert not old.log("draining")
    for address in old.addresses():
        with Conn(address) as conn:
            assert conn.request("GET", "/readyz").status == 200
    newest = successor(world, redis, folder, listen, wait="listening")
    taken_over(newest)
    old.close_clients()
    assert old.wait(30) == 0
    assert stat.S_ISSOCK(os.stat(f"{folder}/s").st_mode)
    with Conn(newest.address) as conn:
        assert conn.request("GET", "/readyz").status == 200


def test_two_successors_at_once(world, redis):
    """Broken: both take the sockets and each ends the other's predecessor."""
    folder = world.folder()
    old = successor(world, redis, folder, ["127.0.0.1:0"])
    waits = world.pawld("redis://127.0.0.1:1/0", ["--handover", f"{folder}/handover"], wait="listening")
    until(lambda: waits.log("taking_over"), what="the first waits")
    late = successor(world, redis, folder, ["127.0.0.1:0"], wait=None)
    late.expect_exit(1)
    assert late.wait(30) == 1
    assert "taking over already" in late.log("not_started")[0]["problem"]
    assert old.api().healthz() == 200


def test_who_listens_there_and_says_nothing(world, redis):
    """Broken: a start hangs for ever."""
    folder = world.folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(f"{folder}/handover")
        mute.listen()
        pawld = successor(world, redis, folder, ["127.0.0.1:0"], wait=None)
        pawld.expect_exit(1)
        assert pawld.wait(30) == 1
        assert "does not answer" in pawld.log("not_started")[0]["problem"]
        talker = successor(world, redis, folder, ["127.0.0.1:0"], wait=None)
        conn, _ = mute.accept()
        conn, _ = mute.accept()
        conn.send(b"pawl-sockets 1\n127.0.0.1:0\n")  # a name, and no socket beside it
        talker.expect_exit(1)
        assert talker.wait(30) == 1
        assert "no pawld that hands over" in talker.log("not_started")[0]["problem"]
        conn.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_start_that_fails(world, redis, number):
    """Broken: the signal is answered in the end that follows, when what it is about is gone already."""
    folder = world.folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(f"{folder}/handover")
        mute.listen()
        mute.settimeout(30)
        pawld = successor(world, redis, folder, ["127.0.0.1:0"], wait=None)
        conn, _ = mute.accept()
        pawld.expect_exit(1)
        pawld.signal(number)
        until(lambda: not pending(pawld.pid, number), what="caught")
        conn.close()
        assert pawld.wait(30) == 1
        assert pawld.log("not_started") and not pawld.log("draining") and not pawld.log("reloading")


def pending(pid, number):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        sets = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(bits >> (number - 1) & 1 for bits in sets)


def test_the_socket_for_successors_is_private(world, redis):
    """Broken: whoever shares the machine can take all sockets."""
    folder = world.folder()
    pawld = successor(world, redis, folder, ["127.0.0.1:0"], prefix=["sh", "-c", 'umask 0; exec "$@"', "sh"])
    path = f"{folder}/handover"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        os.chmod(path, 0o666)
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                    stranger.settimeout(20)
                    stranger.connect(path)
                    os._exit(0 if stranger.recv(100) == b"" else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        until(lambda: pawld.log("handover_refused"), what="said so")
    assert pawld.stop() == 0 and not os.path.exists(path)
