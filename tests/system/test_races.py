"""Races: a wait that ends, a client that leaves and a release, within the same millisecond, thousands of times.

A sweep runs many locks at a time. Each round lays what is to happen to each lock on one timeline, runs it from one thread that only sends,
and then reads. The checker looks at every lock after every round: each request has exactly one answer; no answer disagrees with inspect;
the number of waiters falls to the true one; and the lock can be had at once, unless a live waiter was granted it. A lock that is lost stays
taken for ten minutes here and a wake-up that is lost sleeps for 4.5 s at least, so neither can pass for slow.
"""

import random
import time
from types import SimpleNamespace

import pytest

from pawltest.fixtures import LONG
from pawltest.http import Api, Conn, lock_path
from pawltest.residue import until_clean
from pawltest.tls import server_arguments
from pawltest.waiters import LONG_TTL, Waiter, at_times, close_all, gather, look, new_id
from pawltest.wait import until

SOON_S = 4.0  # less than the slow poll, which would cover for a wake-up that was lost
LOCKS = 60  # a round

WAYS = {
    # holder's node, waiters' node, delay of Redis for the waiters' node, one way
    "one_node": (0, 0, 0),
    "two_nodes": (0, 1, 0),
    "one_node_slow_redis": (1, 1, 0.004),
    "two_nodes_slow_redis": (0, 1, 0.004),
}
if LONG:
    WAYS["one_node_tls"] = (0, 0, 0)
    WAYS["two_nodes_back"] = (1, 0, 0)
    WAYS["two_nodes_slow_redis_back"] = (1, 0, 0.004)
    WAYS["two_nodes_very_slow_redis"] = (0, 1, 0.05)
ROUNDS = 5000 if LONG else 8 * LOCKS


@pytest.fixture(params=list(WAYS))
def field(request, world, redis):
    """Two nodes and clients for both; the second node's Redis may be slow."""
    holder, waiter, delay_s = WAYS[request.param]
    proxy = world.proxy(redis.address) if delay_s else None
    patient = ["--store-timeout", "8s"]  # a machine that is busy for a second is not what is tried here
    tls = request.param == "one_node_tls"
    first = world.pawld(redis, patient + (server_arguments() if tls else []), listen=("tls:127.0.0.1:0" if tls else "127.0.0.1:0",))
    nodes = [first, world.pawld(proxy.redis_url if proxy else redis, patient)]
    if proxy:
        proxy.delay_up_s = proxy.delay_down_s = delay_s
        proxy.jitter_s = delay_s
    return SimpleNamespace(redis=redis, nodes=nodes, holder=nodes[holder], waiter=nodes[waiter], delay_s=delay_s, api=nodes[0].api(),
        one_node=holder == waiter)


class Round:
    """One lock of a round: its holder, its waiters, what was told to whom."""

    def __init__(self, field, name, conns):
        self.field, self.name = field, name
        self.holder = Waiter(field.holder.address, name, 0, owner="holder", conn=conns["holder"])
        self.first = self.second = None
        self.left = []
        self.bare_reset = False  # it left by a reset, without an answer that it could have seen
        self.perhaps_told = False  # it left, but its answer may have been there

    def wait(self, conns, wait_ms, second=False):
        self.first = Waiter(self.field.waiter.address, self.name, wait_ms, owner="first", conn=conns.get("first"), ask=False)
        if second:
            self.second = Waiter(self.field.waiter.address, self.name, 30_000, owner="second", conn=conns.get("second"), ask=False)

    def leave(self):
        if self.first.answered():
            return  # it had its answer before it could leave
        self.left.append(self.first)
        how = "close" if int(self.name.rpartition("/")[2]) % 3 else "reset"
        self.perhaps_told = not self.first.leave(how)
        self.bare_reset = how == "reset" and not self.perhaps_told


class Sweep:
    """Connections that stay, and the checker."""

    def __init__(self, field, name, seed):
        self.field, self.name = field, name
        self.rng = random.Random(seed)
        self.conns = [{} for _ in range(LOCKS)]
        self.count = 0
        self.seen = {"granted": 0, "refused": 0, "left": 0, "late": 0, "perhaps_told": 0, "crossed": 0}
        self.problems = []
        # where Redis is slow, the look at each lock goes by the other node
        self.check_api = [node.api() for node in field.nodes[:1 if field.delay_s else 2]]

    def conn(self, i, role, address):
        conns = self.conns[i]
        if conns.get(role) is None or conns[role].sock.fileno() < 0:
            conns[role] = Conn(address)
        return conns[role]

    def begin(self, wait_ms, behind=None):
        """Takes LOCKS locks and gets the waiters ready to ask. behind: whether another waiter stands behind the first one; None: by half of
        them."""
        rounds = []
        for i in range(LOCKS):
            second = i % 2 == 1 if behind is None else behind
            self.count += 1
            self.conn(i, "holder", self.field.holder.address)
            self.conn(i, "first", self.field.waiter.address)
            if second:
                self.conn(i, "second", self.field.waiter.address)
            it = Round(self.field, f"{self.name}/{self.count}", self.conns[i])
            it.wait(self.conns[i], wait_ms, second)
            rounds.append(it)
        for it in rounds:
            it.holder.granted()
        return rounds

    def finish(self, rounds):
        """Reads every answer and looks at every lock."""
        for it in rounds:
            status, value = it.holder.take_release()
            if status != 200:
                self.problems.append(f"{it.name}: the holder's release: {status} {value}")
        waiting = [w for it in rounds for w in (it.first, it.second) if w is not None and w not in it.left]
        # a second waiter may be behind a first one that was granted and holds on: then the first one gives up
        gather([it.first for it in rounds if it.first not in it.left], 40)
        for it in rounds:
            self.check_first(it)
            if it.bare_reset:
                self.end_crossed(it)
        firsts = [it.first for it in rounds if it.first.status == 200]
        for first in firsts:
            first.send_release()
        for first in firsts:
            if first.take_release()[0] != 200:
                self.problems.append(f"{first.name}: a grant that could not be released: {first.value}")
        seconds = [it.second for it in rounds if it.second is not None]
        start = time.monotonic()
        gather(seconds, 40)
        for waiter in seconds:
            if waiter.status != 200:
                self.problems.append(f"{waiter.name}: the second waiter was told {waiter.status} {waiter.value}")
            elif waiter.sent + waiter.took_s - start > SOON_S:
                slept = waiter.sent + waiter.took_s - start
                self.problems.append(f"{waiter.name}: the second waiter slept for {slept:.1f} s on a free lock")
                self.seen["late"] += 1
            if waiter.status == 200:
                waiter.send_release()
        for waiter in seconds:
            if waiter.releasing and waiter.take_release()[0] != 200:
                self.problems.append(f"{waiter.name}: a grant that could not be released: {waiter.value}")
        for it in rounds:
            self.check_free(it)
        for waiter in waiting:
            if waiter.answered():
                self.problems.append(f"{waiter.name}: a second answer to one request")

    def check_first(self, it):
        first = it.first
        if first in it.left:
            self.seen["left"] += 1
            if it.perhaps_told:
                # a client that was told knows that it holds the lock; who can't tell releases
                self.seen["perhaps_told"] += 1
                self.check_api[0].release(it.name, lease_id=first.lease_id)
            return
        if first.status == 200:
            self.seen["granted"] += 1
            shown = look(self.rng.choice(self.check_api), it.name)
            if shown.get("token") != first.token:
                self.problems.append(f"{it.name}: told token {first.token}, inspect shows {shown}")
            if first.token <= it.holder.token:
                self.problems.append(f"{it.name}: token {first.token} after {it.holder.token}")
            status, value = self.rng.choice(self.check_api).acquire(it.name, lease_id=new_id())
            if status != 409:
                self.problems.append(f"{it.name}: granted to {first.value} and to {value}")
        elif first.status == 409:
            self.seen["refused"] += 1
        else:
            self.problems.append(f"{it.name}: the waiter was told {first.status} {first.value}")

    def end_crossed(self, it):
        """A client that left by a bare reset: if its lease stands for good, then it ends here."""
        end = time.monotonic() + SOON_S
        while look(self.field.api, it.name).get("owner") == it.first.owner:
            if time.monotonic() > end:
                self.seen["crossed"] += 1
                self.field.api.must("brk", it.name, reason="its holder left")
                return
            time.sleep(0.01)

    def check_free(self, it):
        """Nobody holds it and nobody waits: it can be had. At once, unless the first one's leaving had yet to be noticed."""
        api = self.rng.choice(self.check_api)
        end = time.monotonic() + (SOON_S if it.left or self.field.delay_s or not self.field.one_node else 0)
        while True:
            status, value = api.acquire(it.name, ttl_ms=LONG_TTL, lease_id=new_id())
            if status == 200 or time.monotonic() > end:
                break
        if status != 200:
            self.problems.append(f"{it.name}: lost: {status} {value}; first: {it.first.status} {it.first.value}, left: {bool(it.left)}")
            return
        shown = look(api, it.name)
        if shown["waiters"] != 0 or shown["token"] != value["token"]:
            self.problems.append(f"{it.name}: nobody waits, but inspect shows {shown}")
        api.must("release", it.name, lease_id=value["lease_id"])

    def end(self):
        assert self.seen["perhaps_told"] <= self.count // 5, f"too little was seen: {self.seen}"
        # A reset that crosses the grant on its way does not prove that the client could not read it: such a lease stands (docs/guarantees.md, P8), and pawld
        # counts it. That many, and of clients that left so, may be found taken; nothing else is let pass.
        unproven = sum(node.api().metrics()["pawl_http_unproven_replies_total"] for node in self.field.nodes)
        assert self.seen["crossed"] <= unproven, f"more locks are held by clients that left than resets ({unproven}) crossed a grant: {self.seen}"
        assert self.problems == [], f"{len(self.problems)} in {self.count} rounds: {self.problems[:4]} (seen: {self.seen})"
        for node in self.field.nodes:
            until(lambda node=node: node.api().metrics()["pawl_waiters"] == 0, what="no waiter is left")
            assert node.running()
        for conns in self.conns:
            for conn in conns.values():
                conn.close()
        until_clean(self.field.redis)


def test_c04_the_wait_ends_as_the_holder_releases(field, name):
    """Broken: a waiter is told that its time is over although it was granted the lock, which then blocks everybody; or the one behind it
    sleeps. (C04)"""
    sweep = Sweep(field, name, 4)
    wait_ms = 120
    while sweep.count < ROUNDS:
        rounds = sweep.begin(wait_ms)
        start = time.monotonic() + 0.02
        actions = []
        for i, it in enumerate(rounds):
            asks = start + i * 0.001
            # the wait ends at asks + wait_ms; the release comes from 3 ms before to 3 ms after (and earlier by what Redis is slow)
            release = asks + wait_ms / 1000 + sweep.rng.uniform(-0.003, 0.003) - field.delay_s * sweep.rng.uniform(0, 3)
            actions.append((asks, it.first.ask))
            if it.second:
                actions.append((asks + 0.0003, it.second.ask))
            actions.append((release, it.holder.send_release))
        at_times(actions)
        sweep.finish(rounds)
    sweep.end()
    assert sweep.seen["granted"] > 2 and sweep.seen["refused"] > 0, f"the sweep missed the instant: {sweep.seen}"


def test_c02_the_client_leaves_as_the_holder_releases(field, name):
    """Broken: the lock is granted to a client that has just gone, and blocks everybody; or the one behind it sleeps. (C02, P8)"""
    sweep = Sweep(field, name, 2)
    while sweep.count < ROUNDS:
        rounds = sweep.begin(30_000)
        start = time.monotonic() + 0.02
        actions = []
        for i, it in enumerate(rounds):
            asks = start + i * 0.0005
            release = start + 0.06 + i * 0.0012
            leaves = release + sweep.rng.uniform(-0.0015, 0.0025) + field.delay_s * sweep.rng.uniform(0, 9)
            actions.append((asks, it.first.ask))
            if it.second:
                actions.append((asks + 0.0002, it.second.ask))
            actions.append((release, it.holder.send_release))
            actions.append((leaves, lambda it=it: it.leave()))
        at_times(actions)
        sweep.finish(rounds)
    sweep.end()
    assert sweep.seen["granted"] > 2 and sweep.seen["left"] > 2, f"the sweep missed the instant: {sweep.seen}"


def test_the_wait_ends_as_the_client_leaves_and_the_holder_releases(field, name):
    """Broken: three ends of one request within the same millisecond leave the lock taken, the queue filled or the next one asleep."""
    sweep = Sweep(field, name, 3)
    wait_ms = 120
    while sweep.count < ROUNDS:
        rounds = sweep.begin(wait_ms, True)
        start = time.monotonic() + 0.02
        actions = []
        for i, it in enumerate(rounds):
            asks = start + i * 0.001
            over = asks + wait_ms / 1000
            spread = 0.0015 + field.delay_s * 2
            actions.append((asks, it.first.ask))
            actions.append((asks + 0.0003, it.second.ask))
            actions.append((over + sweep.rng.uniform(-spread, 0.0015), it.holder.send_release))
            if i % 3:
                actions.append((over + sweep.rng.uniform(-spread, spread), lambda it=it: it.leave()))
        at_times(actions)
        sweep.finish(rounds)
    sweep.end()
    assert min(sweep.seen[what] for what in ("granted", "refused", "left")) > 0, f"the sweep missed the instant: {sweep.seen}"


def test_c02_the_client_leaves_as_its_request_arrives(field, name):
    """Broken: a client that left before its request reached Redis has a place in the queue, or the lock. (C02, P8)"""
    sweep = Sweep(field, name, 5)
    while sweep.count < ROUNDS:
        rounds = sweep.begin(30_000, False)
        start = time.monotonic() + 0.02
        actions = []
        for i, it in enumerate(rounds):
            asks = start + i * 0.0012
            actions.append((asks, it.first.ask))
            actions.append((asks + sweep.rng.uniform(0, 0.002) + field.delay_s * sweep.rng.uniform(0, 3), lambda it=it: it.leave()))
            actions.append((asks + sweep.rng.uniform(0, 0.004) + field.delay_s * sweep.rng.uniform(0, 3), it.holder.send_release))
        at_times(actions)
        sweep.finish(rounds)
    sweep.end()
    assert sweep.seen["left"] > 0.3 * sweep.count, f"the sweep missed the instant: {sweep.seen}"


def test_c06_the_release_comes_as_the_waiter_asks(field, name):
    """Broken: the wake-up is sent before the waiter listens, and it sleeps although the lock is free. (C06)"""
    sweep = Sweep(field, name, 6)
    slow = []
    while sweep.count < ROUNDS:
        rounds = sweep.begin(10_000, False)
        start = time.monotonic() + 0.02
        actions, released = [], {}

        def release(it, released=released):
            it.holder.send_release()
            released[it.name] = time.monotonic()

        for i, it in enumerate(rounds):
            asks = start + i * 0.001
            actions.append((asks, it.first.ask))
            actions.append((asks + sweep.rng.uniform(0, 0.005) + field.delay_s * sweep.rng.uniform(0, 2), lambda it=it: release(it)))
        at_times(actions)
        sweep.finish(rounds)
        for it in rounds:
            took = it.first.sent + it.first.took_s - released[it.name]
            if it.first.status != 200 or took > SOON_S:
                slow.append((it.first.status, round(took, 3)))
    sweep.end()
    assert sweep.seen["granted"] == sweep.count and slow == [], f"not at once: {slow[:5]} of {sweep.count}"


def test_the_lease_runs_out_as_the_wait_ends(field, name):
    """Broken: an end by expiry, a wait's end and a client's leaving within the same millisecond lose the lock or a wake-up."""
    sweep = Sweep(field, name, 7)
    late, ttl_ms = [], 250
    rng = sweep.rng
    while sweep.count < ROUNDS:
        waiters, seconds, conns, ends = [], [], [], []
        laid = time.monotonic()
        api = field.holder.api()
        for i in range(LOCKS):
            sweep.count += 1
            lock = f"{name}/{sweep.count}"
            while True:
                taken = time.monotonic()
                status, value = api.acquire(lock, ttl_ms=ttl_ms)
                if status == 200:
                    break
                # a machine that was away for longer than the lease: the answer came too late to be one
                assert status in (409, 503), value
            over = taken + ttl_ms / 1000 + rng.uniform(-0.004, 0.004) - rng.uniform(0, 3) * field.delay_s
            first = Waiter(field.waiter.address, lock, max(1, int((over - time.monotonic()) * 1000)))
            second = Waiter(field.waiter.address, lock, 20_000)
            ends.append(taken + ttl_ms / 1000)
            waiters.append(first)
            seconds.append(second)
            conns += [first, second]
        read = time.monotonic()
        gather(waiters + seconds, 40, release="once")
        for second, end in zip(seconds, ends):
            second.granted()
            # who was granted first gives up when that is read; a machine on which 60 locks take long to lay reads the first of them late
            after = second.sent + second.took_s - (end if read - laid < 2 else max(end, read))
            if after > SOON_S:
                late.append((second.name, round(after, 2)))
        check = field.api
        for waiter in waiters:
            assert waiter.status in (200, 409), waiter.value
            status, value = check.acquire(waiter.name)
            assert status == 200, f"lost: {value}"
            check.must("release", waiter.name, lease_id=value["lease_id"])
        close_all(conns)
        api.close()
    assert late == [], f"{len(late)} of {sweep.count} slept on a free lock: {late[:5]}"
    sweep.end()


def test_p7_a_client_comes_back_as_its_old_connection_ends(field, name):
    """Broken: the end of the old connection takes away the place, or the grant, of the request with the same lease id that has just come.
    (P6, P7)"""
    rng = random.Random(8)
    count, problems = 0, []
    api = field.api
    nodes = [field.waiter, field.waiter if field.one_node else field.holder]
    while count < ROUNDS:
        holders, firsts, seconds, backs, actions = [], [], [], [], []
        for i in range(LOCKS):
            lock = f"{name}/{count}"
            count += 1
            holders.append(Waiter(field.holder.address, lock, 0, owner="holder"))
        for holder in holders:
            holder.granted()
        for holder in holders:
            firsts.append(Waiter(field.waiter.address, holder.name, 30_000))
        for first in firsts:
            until(lambda first=first: look(api, first.name)["waiters"] == 1, what="the first is in the queue", every_s=0.002)
        for holder in holders:
            seconds.append(Waiter(field.waiter.address, holder.name, 30_000))
        for second in seconds:
            until(lambda second=second: look(api, second.name)["waiters"] == 2, what="the second too", every_s=0.002)
        start = time.monotonic() + 0.03
        for i, (holder, first) in enumerate(zip(holders, firsts)):
            back = Waiter(nodes[i % 2].address, holder.name, 30_000, lease_id=first.lease_id, ask=False)
            backs.append(back)
            at = start + i * 0.002
            actions.append((at, back.ask))
            actions.append((at + rng.uniform(0, 0.002) + rng.uniform(0, 3) * field.delay_s, lambda first=first: first.leave("reset")))
            actions.append((at + rng.uniform(0.002, 0.006) + rng.uniform(0, 6) * field.delay_s, holder.send_release))
        at_times(actions)
        for holder in holders:
            assert holder.take_release()[0] == 200
        start = time.monotonic()
        gather(backs + seconds, 40, release="once")
        for back, second in zip(backs, seconds):
            slept = max(w.sent + w.took_s for w in (back, second)) - start
            if back.status != 200 or second.status != 200:
                problems.append(f"{back.name}: told {back.status} {second.status}")
            elif slept > SOON_S:
                problems.append(f"{back.name}: slept {slept:.1f} s")
            elif back.token > second.token:
                problems.append(f"{back.name}: passed")
        close_all(holders + seconds + backs)
    assert problems == [], f"{len(problems)} in {count} rounds: {problems[:5]}"
    until_clean(field.redis)


@pytest.mark.parametrize("how", ["messages_killed", "connections_killed"])
def test_a_wake_up_that_is_lost_is_made_good(world, redis, name, how):
    """Broken: a message lost with its connection leaves a waiter asleep until the slow poll, or for ever. (C06)"""
    a, b = world.pawld(redis), world.pawld(redis)
    api = Api(a.address)
    for i in range(40):
        lock = f"{name}/{i}"
        grant = api.must("acquire", lock, ttl_ms=LONG_TTL)
        waiter = Waiter(b.address, lock, 30_000)
        until(lambda lock=lock: look(api, lock)["waiters"] == 1, what="it waits", every_s=0.002)
        kind = ["TYPE", "pubsub"] if how == "messages_killed" else ["TYPE", "normal", "SKIPME", "yes"]
        redis.command("CLIENT", "KILL", *kind)
        released = time.monotonic()
        until(lambda lock=lock, grant=grant: api.release(lock, lease_id=grant["lease_id"])[0] in (200, 410), what="released")
        waiter.granted()
        assert time.monotonic() - released < SOON_S, (i, time.monotonic() - released)
        waiter.conn.request("POST", lock_path(lock, "release"), {"lease_id": waiter.lease_id})
        waiter.close()
    api.close()
    until_clean(redis)
