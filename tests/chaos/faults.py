"""What goes wrong in a chaos run; in which house, house.py tells.

FAULTS and SENTINEL_FAULTS are the lists, a row for each kind. A fault is a generator: it does its harm, yields for how many seconds that is to last,
and puts things right again; between the two it is in the history as begun. What it keeps busy (the Redis, one sentinel, one node) is left alone by
other faults meanwhile. A fault of Redis is over when its house is calm again.
"""

import collections
import heapq
import random
import signal
import threading
import time

from chaos.history import now
from chaos.house import answering
from pawltest.redis import RespError

HARMLESS_DELAY_S = 0.015  # each way: a round trip that the recovery window has room for
FAILOVER_S = 45.0  # by then there was one, or there will be none

# ---------------------------------------------------------------- the kinds
# Each is given the house, dice, the number of the node or sentinel that it is for (or None) and `mark`, which writes its begin and its end; `mark` has to
# frame the harm.


def redis_kill(house, dice, _node, mark):
    """kill -9; what was answered is on disk and comes back. Under sentinels it may come back as what it was no more."""
    server = house.redis
    mark("begin", server.kill9)
    yield dice.uniform(0.0, 1.5)
    mark("end", lambda: house.start_redis(server))


def redis_restart(house, dice, _node, mark):
    server = house.redis
    mark("begin", server.stop)
    yield dice.uniform(0.0, 0.5)
    mark("end", lambda: house.start_redis(server))


def redis_lose(house, dice, _node, mark):
    """kill -9 of a Redis that keeps nothing."""
    yield from _lose(house, dice, mark, lambda: None, dice.choice((0.0, 0.2, 1.5)))


def _lose(house, dice, mark, meanwhile, away_s):
    servers = house.losers(dice)

    def kill():
        for server in servers:
            server.kill9()

    def start():
        for server in servers:
            house.start_redis(server)

    mark("begin", kill, loss=True)
    for server in servers:
        house.erase(server)
    meanwhile()
    yield away_s
    mark("end", start)


def redis_flush(house, _dice, _node, mark):
    mark("begin", lambda: None, loss=True)
    house.order("FLUSHALL")
    mark("end", lambda: None)
    yield 0.0


def redis_stop(house, dice, _node, mark):
    """Frozen for longer than a store call may take, or for less. Under sentinels it may wake up deposed, with calls in its sockets."""
    server = house.redis
    mark("begin", server.sigstop)
    yield dice.choice((0.1, 0.7, 1.5, 4.0))
    mark("end", server.sigcont)


def redis_pause(house, dice, _node, mark):
    server, length_ms = house.redis, dice.choice((100, 600, 1500))
    mark("begin", lambda: house.order("CLIENT", "PAUSE", length_ms, dice.choice(("WRITE", "ALL"))))
    yield length_ms / 1000
    mark("end", lambda: None)
    if house.redis is server:
        house.order("CLIENT", "UNPAUSE")


def redis_script_flush(house, _dice, _node, mark):
    mark("begin", lambda: house.order("SCRIPT", "FLUSH"))
    mark("end", lambda: None)
    yield 0.0


def redis_client_kill(house, dice, _node, mark):
    """Commands' connections, or those for messages between nodes."""
    mark("begin", lambda: house.order("CLIENT", "KILL", "TYPE", dice.choice(("normal", "pubsub")), "SKIPME", "yes"))
    mark("end", lambda: None)
    yield 0.0


def failover_asked(house, dice, _node, mark, lags=(0.0, 0.2, 0.8, 1.5)):
    """A sentinel is asked for it, mostly when the replica has not been sent the newest for a while."""
    yield from _failover(house, dice, mark, lambda server: house.ask_failover(dice), lambda server: None, lags)


def failover_kill(house, dice, _node, mark, lags=(0.0, 0.2, 0.8, 1.5)):
    """The master dies and comes back later: as a master still, until the sentinels put that right, or as a replica."""

    def back(server):
        if dice.random() < 0.3:
            house.erase(server)
        (house.start_deposed if dice.random() < 0.5 else house.start_redis)(server)

    yield from _failover(house, dice, mark, lambda server: server.kill9(), back, lags)


def failover_stop(house, dice, _node, mark, lags=(0.0, 0.2, 0.8, 1.5)):
    """The master freezes and wakes up deposed: what lies in its sockets is carried out, and tells nobody."""

    def freeze(server):
        if answering(server):
            server.sigstop()

    yield from _failover(house, dice, mark, freeze, lambda server: server.sigcont(), lags)


def failover_lagging(house, dice, node, mark):
    """One of these by turns of the dice, and always to a replica that has not been sent the newest."""
    yield from dice.choice((failover_asked, failover_kill, failover_stop))(house, dice, node, mark, lags=(0.2, 0.8, 1.5))


def failover_far_behind(house, dice, node, mark):
    """To a replica that lacks most of what is held. (Twice as long, and the sentinels would not take it.)"""
    yield from failover_asked(house, dice, node, mark, lags=(5.0,))


def _failover(house, dice, mark, harm, mend, lags):
    server, end = house.redis, now() + FAILOVER_S
    mark("begin", lambda: None)
    lag = dice.choice(lags)
    if lag:
        house.cut_replication()
        yield lag
    while house.redis is server and now() < end:
        harm(server)
        yield 0.2
    yield dice.choice((0.0, 0.3, 2.0))
    mend(server)
    house.allow_replication()
    mark("end", lambda: None)


def replica_kill(house, dice, _node, mark):
    server = house.replica
    mark("begin", server.kill9)
    yield dice.choice((0.0, 1.0, 4.0))
    mark("end", lambda: house.start_redis(server))


def sentinels_away(house, dice, _node, mark):
    """All of them, so there will be no failover: whoever has a master keeps it, and who has none waits."""
    mark("begin", lambda: [sentinel.kill9() for sentinel in house.sentinels])
    yield dice.choice((0.5, 3.0))
    for sentinel in house.sentinels:
        sentinel.start()
    mark("end", lambda: None)


def sentinel_kill(house, dice, i, mark):
    """It comes back with what it knew, which may be an older master."""
    mark("begin", house.sentinels[i].kill9)
    yield dice.choice((0.0, 2.0, 8.0))
    mark("end", house.sentinels[i].start)


def sentinel_stop(house, dice, i, mark):
    """Frozen: its connections stand and say nothing. One that slept for two seconds mistrusts the clock for half a minute, unless it starts anew."""
    long = dice.random() < 0.4
    mark("begin", house.sentinels[i].sigstop)
    yield 6.0 if long else 1.0
    mark("end", house.sentinels[i].sigcont)
    if long:
        yield 0.5
        house.sentinels[i].kill9()
        house.sentinels[i].start()


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

    def turn_back():
        if dice.random() < 0.5 or not house.clock.behind():
            house.clock.shift(-3600)

    yield from _lose(house, dice, mark, turn_back, dice.uniform(0.0, 1.0))
    yield from house.settling()
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


def net_blind(house, dice, node, mark):
    """The node reaches no sentinel, and whoever was master stays its master until that one says no."""
    yield from _doors(house.doors[node][1], dice, mark)


def net_half(house, dice, node, mark):
    """The node reaches the sentinels and not the servers."""
    yield from _doors(house.doors[node][0], dice, mark)


def _doors(doors, dice, mark):
    def set_shut(shut):
        for door in doors:
            door.shut = shut

    mark("begin", lambda: set_shut(True))
    yield dice.choice((0.5, 3.0, 8.0))
    mark("end", lambda: set_shut(False))


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
SENTINEL_FAULTS = FAULTS + [
    Kind(failover_asked, 8, "redis"),
    Kind(failover_kill, 5, "redis"),
    Kind(failover_stop, 4, "redis"),
    Kind(replica_kill, 2, "redis"),
    Kind(sentinels_away, 1, "redis"),
    Kind(sentinel_kill, 1, "sentinel"),
    Kind(sentinel_stop, 1, "sentinel"),
    Kind(net_blind, 2, "node"),
    Kind(net_half, 1, "node"),
]
LOSSES_ONLY = [kind for kind in FAULTS if kind.act in (redis_lose, redis_flush)]
DELETE_LOCKS = [Kind(delete_locks, 1, "redis")]
FAR_BEHIND = [Kind(failover_far_behind, 1, "redis")]
CLOCKS = (clock_forward, clock_back, redis_lose_back)


# After a fault of Redis: at times the next comes upon it, at times there is room for a recovery to end.
RESTS_S = (0.3, 2.0, 4.5, 6.0, 8.0)
OTHER_RESTS_S = {"node": (0.2, 1.0, 2.0, 4.0), "sentinel": (1.0, 3.0, 6.0)}  # from one beginning to the next


class Director:
    """Picks faults by dice and runs them, one after the other where they would meet. With `count`, so many of them and then no more."""

    def __init__(self, house, history, seed, kinds, rests=RESTS_S, count=None):
        self.house, self.history, self.kinds, self.left = house, history, kinds, count
        self._rests = {"redis": rests, **OTHER_RESTS_S}
        self._nexts = {}
        self.dice = random.Random(f"{seed}/faults")
        self.counts = collections.Counter()
        self._busy = set()
        self._due = []  # entries are (when, number, generator, what it keeps busy)
        self._number = 0
        self._late = False
        self._awaited = None  # of those that keep all busy, one that is next

    def run(self, seconds):
        start, end = now(), now() + seconds
        if self.house.clock.env is None:
            self.history.add("note", what="no C compiler, so the clock of Redis is left alone")
            self.kinds = [kind for kind in self.kinds if kind.act not in CLOCKS]
        first = 2.0 if self.left else 0.5  # when they are counted, each should find leases to lose
        self._nexts = {busies: start + first for busies in self._rests if any(kind.busies in (busies, "all") for kind in self.kinds)}
        while now() < end and self.left != 0 and self.kinds:
            for busies, at in self._nexts.items():
                if now() >= at:
                    rest = self._rests[busies] if self._begin(busies) and not self._awaited else (0.1,)
                    self._nexts[busies] = now() + self.dice.choice(rest)
            # once the clock is behind, losses come with the care that needs: so in the last third
            self._late = now() > start + seconds * 2 / 3 or self.left is not None
            self._step()
            time.sleep(0.01)
        while self._due:
            self._step()
            time.sleep(0.01)

    def _kinds(self, busies):
        kinds = [kind for kind in self.kinds if kind.busies == busies or (kind.busies == "all" and busies == "redis" and self._late)]
        if self.house.clock.behind():
            kinds = [kind for kind in kinds if kind not in LOSSES_ONLY]
        return kinds

    def _begin(self, busies):
        """Whether one has begun."""
        kinds = self._kinds(busies)
        node = self._victim(busies)
        if not kinds or (busies, node) in self._busy or ("all", None) in self._busy or not self._may_begin(busies):
            return False
        kind = self._awaited or self.dice.choices(kinds, [kind.weight for kind in kinds])[0]
        if kind.busies == "all":
            # it begins when all others have ended
            self._awaited = kind if self._busy else None
            if self._busy:
                return False
            busies, node = "all", None
        self._number += 1
        generator = self._whole(kind, node, self._marker(self._number, kind.act.__name__, node))
        self.counts[kind.act.__name__] += 1
        self._busy.add((busies, node))
        heapq.heappush(self._due, (now(), self._number, generator, (busies, node)))
        if self.left:
            self.left -= 1
        self._step()
        return True

    def _victim(self, busies):
        things = {"node": self.house.nodes, "sentinel": getattr(self.house, "sentinels", ())}.get(busies)
        return self.dice.randrange(len(things)) if things else None

    def _may_begin(self, busies):
        """A failover needs two sentinels of three, and whoever leads it must not be taken from it: nobody could tell then who is master."""
        if busies == "sentinel":
            return self.house.calm() and not any(other in ("redis", "sentinel") for other, _ in self._busy)
        return busies != "redis" or self.house.calm()

    def _whole(self, kind, node, mark):
        yield from kind.act(self.house, self.dice, node, mark)
        if kind.busies == "redis":
            yield from self.house.settling()

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
                self._ended(busy)
                continue
            except (OSError, RespError) as error:
                # sentinels may make a failover of their own accord, when the machine is slow: then this is told to a replica
                if self.house.calm():
                    self.house.problems.append(f"a fault could not be made: {error!r}")
                self.history.add("note", what="a fault could not be made", error=repr(error))
                self._ended(busy)
                continue
            heapq.heappush(self._due, (now() + pause, number, generator, busy))

    def _ended(self, busy):
        self._busy.discard(busy)
        if busy[0] in ("redis", "all"):
            self._nexts["redis"] = now() + self.dice.choice(self._rests["redis"])


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
