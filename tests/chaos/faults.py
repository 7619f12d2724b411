"""What goes wrong in a chaos run, and the house in which it does: one Redis, several pawlds, a proxy between each pawld and Redis.

FAULTS is the list, a row for each kind. A fault is a generator: it does its harm, yields for how many seconds that is to last, and puts things right
again; between the two it is in the history as begun. What it keeps busy (the Redis, one node) is left alone by other faults meanwhile. A house with
replicas and sentinels is another House with rows of its own; nothing else needs to know.
"""

import collections
import heapq
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time

from chaos.history import now
from pawltest.pawld import Pawld
from pawltest.process import socket_folder
from pawltest.proxy import Proxy
from pawltest.redis import RedisServer, RespError
from pawltest.wait import until

WINDOW = "3s"
HARMLESS_DELAY_S = 0.015  # each way: a round trip that the recovery window has room for


class Clock:
    """The wall clock of a Redis, which can be set (clock_shift.c). Without a C compiler it can't: `env` is None."""

    def __init__(self, folder):
        library, self.path = os.path.join(folder, "clock_shift.so"), os.path.join(folder, "clock_shift")
        self.shift_us, self._furthest = 0, float("-inf")
        self._write()
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock_shift.c")
        compiler = (os.environ.get("CC") or "cc").split()
        try:
            built = subprocess.run(compiler + ["-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", library, source], check=False)
            self.env = {**os.environ, "LD_PRELOAD": library, "CLOCK_SHIFT": self.path} if built.returncode == 0 else None
        except OSError:
            self.env = None

    def _write(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, struct.pack("q", self.shift_us), 0)
        os.close(fd)

    def shift(self, seconds):
        self._furthest = max(self._furthest, now() + self.shift_us / 1e6)
        self.shift_us += int(seconds * 1e6)
        self._write()

    def behind(self):
        """Has it been later already than it is now?"""
        return now() + self.shift_us / 1e6 < self._furthest


class ClockedRedis(RedisServer):
    """A redis-server that looks at that clock."""

    def __init__(self, clock, **how):
        super().__init__(**how)
        self.clock = clock

    def start_process(self, argv, env=None, cwd=None):
        super().start_process(argv, self.clock.env if env is None else env, cwd)


class House:
    """Redis with all writes on disk before they are answered, nodes that reach it through a proxy each and listen at a path that stays."""

    def __init__(self, nodes, history, window=WINDOW):
        self.history = history
        self.folder = socket_folder()
        self.clock = Clock(self.folder)
        self.redis = ClockedRedis(self.clock, options={"appendonly": "yes", "appendfsync": "always"})
        self.proxies, self.nodes = [], []
        self.sockets = [os.path.join(self.folder, f"n{i}.sock") for i in range(nodes)]
        self.window = window
        self.problems = []

    def start(self):
        self.redis.start()
        for path in self.sockets:
            proxy = Proxy(self.redis.address).start()
            self.proxies.append(proxy)
            self.nodes.append(Pawld(proxy.redis_url, ["--recovery-window", self.window, "--drain-timeout", "1s"], listen=[f"unix:{path}"]))
        for node in self.nodes:
            node.start(wait=None)
        self.wait_ready()
        return self

    def ready(self):
        return all(node.running() and node.addresses() and node.ready() for node in self.nodes)

    def wait_ready(self, deadline_s=60.0):
        until(self.ready, deadline_s, "every node is ready")

    def start_node(self, i):
        self.check_node(i)
        self.nodes[i].start(wait=None)
        self.history.add("note", what="node started", node=i, pid=self.nodes[i].pid, at=now())

    def check_node(self, i):
        """A process that has ended: as it should, and without a report of a sanitizer? Its log is kept in any case."""
        try:
            self.nodes[i].check()
        except AssertionError as error:
            self.problems.append(f"node {i}: {error}")

    def erase(self):
        """Leaves nothing of what a dead Redis had on disk."""
        for name in ("appendonlydir", "dump.rdb"):
            path = os.path.join(self.redis.folder, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)

    def finish(self):
        """Ends all nodes in good order; their faults are among the problems."""
        for i, node in enumerate(self.nodes):
            try:
                node.finish()
            except AssertionError as error:
                self.problems.append(f"node {i}: {error}")

    def close(self, keep):
        for node in self.nodes:
            node.close(keep_log=keep)
        for proxy in self.proxies:
            proxy.close()
        self.redis.close(keep_log=keep)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def folders(self):
        return [self.folder, self.redis.folder] + [node.folder for node in self.nodes]


# ---------------------------------------------------------------- the kinds
# Each is given the house, dice, the node that it is for (or None) and `mark`, which writes its begin and its end; `mark` has to frame the harm.


def redis_kill(house, dice, _node, mark):
    """kill -9; what was answered is on disk and comes back."""
    mark("begin", house.redis.kill9)
    yield dice.uniform(0.0, 1.5)
    mark("end", house.redis.start)


def redis_restart(house, dice, _node, mark):
    mark("begin", house.redis.stop)
    yield dice.uniform(0.0, 0.5)
    mark("end", house.redis.start)


def redis_lose(house, dice, _node, mark):
    """kill -9 of a Redis that keeps nothing."""
    mark("begin", house.redis.kill9, loss=True)
    house.erase()
    yield dice.uniform(0.0, 1.5)
    mark("end", house.redis.start)


def redis_flush(house, _dice, _node, mark):
    mark("begin", lambda: None, loss=True)
    house.redis.command("FLUSHALL")
    mark("end", lambda: None)
    yield 0.0


def redis_stop(house, dice, _node, mark):
    """Frozen for longer than a store call may take, or for less."""
    mark("begin", house.redis.sigstop)
    yield dice.choice((0.1, 0.7, 1.5, 4.0))
    mark("end", house.redis.sigcont)


def redis_pause(house, dice, _node, mark):
    length_ms = dice.choice((100, 600, 1500))
    mark("begin", lambda: house.redis.command("CLIENT", "PAUSE", length_ms, dice.choice(("WRITE", "ALL"))))
    yield length_ms / 1000
    mark("end", lambda: house.redis.command("CLIENT", "UNPAUSE"))


def redis_script_flush(house, _dice, _node, mark):
    mark("begin", lambda: house.redis.command("SCRIPT", "FLUSH"))
    mark("end", lambda: None)
    yield 0.0


def redis_client_kill(house, dice, _node, mark):
    """Commands' connections, or those for messages between nodes."""
    mark("begin", lambda: house.redis.command("CLIENT", "KILL", "TYPE", dice.choice(("normal", "pubsub")), "SKIPME", "yes"))
    mark("end", lambda: None)
    yield 0.0


def clock_forward(house, dice, _node, mark):
    """Leases end early: that is no breach, and all that excuses is the fence."""
    mark("begin", lambda: house.clock.shift(dice.choice((0.3, 2.0, 10.0, 3600.0))))
    yield 0.1
    mark("end", lambda: None)


def clock_back(house, dice, _node, mark):
    """By little, since leases last longer by as much."""
    mark("begin", lambda: house.clock.shift(-dice.choice((0.1, 0.5, 2.0))))
    yield 0.1
    mark("end", lambda: None)


def redis_lose_back(house, dice, _node, mark):
    """All data are lost and the clock is behind every token: only the nodes know how far the fence was. So here they have to live and to reach
    Redis (docs/guarantees.md, P2): nothing else happens from a second before until all are ready again."""
    yield from _all_well(house, 1.5)
    mark("begin", house.redis.kill9, loss=True)
    house.erase()
    if dice.random() < 0.5 or not house.clock.behind():
        house.clock.shift(-3600)
    yield dice.uniform(0.0, 1.0)
    mark("end", house.redis.start)
    yield from _all_well(house, 0.5)


def _all_well(house, longer_s):
    end = now() + 60
    while not house.ready():
        if now() > end:
            house.problems.append("nodes are not ready though nothing is in their way")
            return
        yield 0.1
    yield longer_s


def node_stop(house, dice, node, mark):
    mark("begin", house.nodes[node].sigstop)
    yield dice.choice((0.2, 1.0, 3.0, 6.0))
    mark("end", house.nodes[node].sigcont)


def node_kill(house, dice, node, mark):
    mark("begin", lambda: None)
    house.nodes[node].kill9()
    mark("end", lambda: None)
    yield dice.uniform(0.0, 2.0)
    house.start_node(node)


def node_term(house, dice, node, mark):
    mark("begin", lambda: house.nodes[node].signal(signal.SIGTERM))
    while house.nodes[node].running():
        yield 0.1
    mark("end", lambda: None)
    yield dice.uniform(0.0, 1.0)
    house.start_node(node)


def net_cut(house, dice, node, mark):
    """Connections are reset and new ones refused."""
    proxy = house.proxies[node]
    proxy.slam = True
    mark("begin", proxy.cut)
    yield dice.choice((0.0, 0.5, 2.0, 6.0))
    proxy.slam = False
    mark("end", lambda: None)


def net_hole(house, dice, node, mark):
    """All that is sent is lost; the connections seem to stand."""
    proxy = house.proxies[node]
    mark("begin", lambda: setattr(proxy, "hole", True))
    yield dice.choice((0.5, 2.0, 5.0))
    proxy.hole = False
    mark("end", proxy.cut)


def net_stall(house, dice, node, mark):
    """One way is held up, and then everything arrives at once."""
    proxy, way = house.proxies[node], dice.choice(("stall_up", "stall_down"))
    mark("begin", lambda: setattr(proxy, way, True), way=way)
    yield dice.choice((0.3, 0.9, 2.0, 5.0))
    mark("end", lambda: setattr(proxy, way, False))


def net_jitter(house, dice, node, mark):
    """As slow as a network may be: no excuse."""
    proxy = house.proxies[node]
    mark("begin", lambda: setattr(proxy, "delay_up_s", HARMLESS_DELAY_S / 3))
    proxy.delay_down_s, proxy.jitter_s = HARMLESS_DELAY_S / 3, HARMLESS_DELAY_S * 2 / 3
    yield dice.uniform(1.0, 4.0)
    proxy.delay_up_s = proxy.delay_down_s = proxy.jitter_s = 0.0
    mark("end", lambda: None)


def net_slow(house, dice, node, mark):
    proxy = house.proxies[node]
    mark("begin", lambda: setattr(proxy, "delay_up_s", dice.uniform(0.05, 0.6)))
    proxy.delay_down_s = dice.uniform(0.05, 0.6)
    yield dice.uniform(1.0, 4.0)
    proxy.delay_up_s = proxy.delay_down_s = 0.0
    mark("end", lambda: None)


# Sabotage: what breaks promises behind pawl's back. The checker is not told of it and has to find what it does.


def delete_locks(house, _dice, _node, _mark):
    for key in house.redis.keys("pawl:{0}:lock:*"):
        house.redis.command("DEL", key)
    yield 0.0


Kind = collections.namedtuple("Kind", "act weight busies")
FAULTS = [
    Kind(redis_kill, 2, "redis"),
    Kind(redis_restart, 1, "redis"),
    Kind(redis_lose, 3, "redis"),
    Kind(redis_flush, 3, "redis"),
    Kind(redis_stop, 2, "redis"),
    Kind(redis_pause, 2, "redis"),
    Kind(redis_script_flush, 1, "redis"),
    Kind(redis_client_kill, 2, "redis"),
    Kind(clock_forward, 2, "redis"),
    Kind(clock_back, 1, "redis"),
    Kind(redis_lose_back, 6, "all"),
    Kind(node_stop, 2, "node"),
    Kind(node_kill, 2, "node"),
    Kind(node_term, 1, "node"),
    Kind(net_cut, 2, "node"),
    Kind(net_hole, 1, "node"),
    Kind(net_stall, 2, "node"),
    Kind(net_jitter, 2, "node"),
    Kind(net_slow, 1, "node"),
]
LOSSES_ONLY = [kind for kind in FAULTS if kind.act in (redis_lose, redis_flush)]
DELETE_LOCKS = [Kind(delete_locks, 1, "redis")]


# Between two faults of Redis: at times one comes upon the other, at times there is room for a recovery to end.
RESTS_S = (0.3, 3.0, 6.0, 8.0, 10.0)


class Director:
    """Picks faults by dice and runs them, one after the other where they would meet."""

    def __init__(self, house, history, seed, kinds, rests=RESTS_S):
        self.house, self.history, self.kinds, self.rests = house, history, kinds, rests
        self.dice = random.Random(f"{seed}/faults")
        self.counts = collections.Counter()
        self._busy = set()
        self._due = []  # entries are (when, number, generator, what it keeps busy)
        self._number = 0
        self._late = False
        self._awaited = None

    def run(self, seconds):
        start, end = now(), now() + seconds
        if self.house.clock.env is None:
            self.history.add("note", what="no C compiler, so the clock of Redis is left alone")
            self.kinds = [kind for kind in self.kinds if kind.act not in (clock_forward, clock_back, redis_lose_back)]
        next_redis = next_node = now() + 0.5
        while now() < end:
            if now() >= next_redis:
                self._begin("redis")
                next_redis = now() + (0.1 if self._awaited else self.dice.choice(self.rests))
            if now() >= next_node:
                self._begin("node")
                next_node = now() + (0.1 if self._awaited else self.dice.choice((0.2, 1.0, 2.0, 4.0)))
            # once the clock is behind, losses come with the care that needs: so in the last third
            self._late = now() > start + seconds * 2 / 3
            self._step()
            time.sleep(0.01)
        while self._due:
            self._step()
            time.sleep(0.01)

    def _begin(self, busies):
        kinds = [kind for kind in self.kinds if kind.busies == busies or (kind.busies == "all" and busies == "redis" and self._late)]
        if self.house.clock.behind():
            kinds = [kind for kind in kinds if kind not in LOSSES_ONLY]
        node = self.dice.randrange(len(self.house.nodes)) if busies == "node" else None
        if not kinds or (busies, node) in self._busy or ("all", None) in self._busy:
            return
        kind = self._awaited or self.dice.choices(kinds, [kind.weight for kind in kinds])[0]
        if kind.busies == "all":
            # it begins when all others have ended
            self._awaited = kind if self._busy else None
            if self._busy:
                return
            busies, node = "all", None
        self._number += 1
        generator = kind.act(self.house, self.dice, node, self._marker(self._number, kind.act.__name__, node))
        self.counts[kind.act.__name__] += 1
        self._busy.add((busies, node))
        heapq.heappush(self._due, (now(), self._number, generator, (busies, node)))
        self._step()

    def _marker(self, number, what, node):
        def mark(phase, action, **more):
            before = now()
            action()
            self.history.add("fault", id=number, what=what, phase=phase, node=node, before=before, after=now(), **more)

        return mark

    def _step(self):
        while self._due and self._due[0][0] <= now():
            _, number, generator, busy = heapq.heappop(self._due)
            try:
                pause = next(generator)
            except StopIteration:
                self._busy.discard(busy)
                continue
            except (OSError, RespError) as error:
                self.house.problems.append(f"a fault could not be made: {error!r}")
                self._busy.discard(busy)
                continue
            heapq.heappush(self._due, (now() + pause, number, generator, busy))


class Watch:
    """Sees when a node, or this process with its proxies, was not given the processor for so long that the node can't be said to have reached
    Redis in time. The kernel counts what a process waits for a processor; our own lateness we measure."""

    STARVED_S = 0.25
    EVERY_S = 0.1

    def __init__(self, house, history):
        self.house, self.history = house, history
        self.counts = collections.Counter()
        self._stop = threading.Event()
        self._number = 0
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _run(self):
        last, waited = now(), {}
        while not self._stop.wait(self.EVERY_S):
            at = now()
            if at - last > self.EVERY_S + self.STARVED_S:
                self._starved(None, last, at)
            for i, node in enumerate(self.house.nodes):
                key, delay = self._run_delay(node)
                if key is not None and delay - waited.get(i, (key, delay))[1] > self.STARVED_S and waited[i][0] == key:
                    self._starved(i, last, at)
                waited[i] = (key, delay)
            last = at

    def _starved(self, node, start, stop):
        self._number += 1
        self.counts["harness" if node is None else "node"] += 1
        for phase in ("begin", "end"):
            self.history.add("fault", id=f"w{self._number}", what="node_starved", phase=phase, node=node, before=start, after=stop)

    @staticmethod
    def _run_delay(node):
        """(pid, seconds that it waited for a processor so far)"""
        try:
            pid = node.pid
            with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
                return pid, int(f.read().split()[1]) / 1e9
        except (OSError, AttributeError, IndexError):
            return None, 0.0
