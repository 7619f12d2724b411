"""How long a loss keeps holders and newcomers waiting, from the moment when Redis can be reached again.

    ./dev recovery --rounds 20 [--house sentinel] [--window 3]

Each round loses all leases: the Redis is killed and started again with nothing, or the master is killed under sentinels whose replica was cut off from
it before. Then several look at once, each as often as it is answered:

    reachable   Redis answers; under sentinels: one of them names the promoted server, which is a master by then. This is the zero of a round.
    renew       the first renewal of a lease held before that works, at each node; of all nodes the last
    grant       the first grant of a free lock to one who only tries
    waiter      the grant to one who asked in the outage and waited
"""

import argparse
import statistics
import sys
import threading
import time

from pawltest.fixtures import World
from pawltest.http import Api
from pawltest.redis import RespConn, RespError
from pawltest.sentinel import MASTER
from pawltest.wait import until
from pawltest.waiters import new_id

NODES = 2
LEASES = 50
LONG_TTL = 600_000
PATIENCE_S = 90.0
EVERY_S = 0.002


class Look:
    """Asks again and again on a thread of its own; .at is when the first good answer was read."""

    def __init__(self, ask):
        self.ask, self.at, self.problem = ask, None, None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        end = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < end:
                if self.ask():
                    self.at = time.monotonic()
                    return
                time.sleep(EVERY_S)
        except AssertionError as error:
            self.problem = error

    def after(self, zero):
        self.thread.join(PATIENCE_S + 30)
        assert self.at is not None, f"it never came: {self.problem}"
        return self.at - zero


def good(answer):
    """200, or not yet. Anything else is no matter of time."""
    status, value = answer
    assert status in (200, 503), (status, value)
    return status == 200


def answers(process, *command):
    """None without an answer."""
    try:
        conn = RespConn((process.host, process.port), 1.0)
    except OSError:
        return None
    try:
        return conn.command(*command)
    except (OSError, RespError):
        return None
    finally:
        conn.close()


class Single:
    window_s = 3.0

    def __init__(self, world):
        self.redis = world.redis()
        self.url = self.redis.url

    def lose(self, outage_s):
        self.redis.kill9()
        time.sleep(outage_s)  # how long the outage lasts, which is what a round tries
        self.redis.start(ready=False)

    def reachable(self):
        return answers(self.redis, "PING") == "PONG"

    def mend(self):
        pass


class Sentinel:
    window_s = 4.0

    def __init__(self, world):
        self.group = world.group()
        self.url = self.group.url
        self.old = None

    def lose(self, _outage_s):
        self.old = self.group.master
        self.group.cut_replication()
        self.old.kill9()

    def reachable(self):
        named = [answers(sentinel, "SENTINEL", "get-master-addr-by-name", MASTER) for sentinel in self.group.sentinels]
        return any(place and int(place[1]) != self.old.port for place in named)

    def mend(self):
        self.group.settle()


def one_round(house, nodes, number, outage_s):
    leases = [[new_id() for _ in range(LEASES)] for _ in nodes]
    for node, mine in zip(nodes, leases):
        api = node.api()
        for i, lease in enumerate(mine):
            until(lambda: good(api.acquire(f"{number}/{node.pid}/{i}", ttl_ms=LONG_TTL, lease_id=lease)), PATIENCE_S, "it is granted")
    house.lose(outage_s)
    last = LEASES - 1
    apis = [Api(node.address, PATIENCE_S) for node in nodes for _ in range(3)]
    looks = {"renew": [], "grant": [], "waiter": []}
    for node, mine, renews, tries, waits in zip(nodes, leases, apis[::3], apis[1::3], apis[2::3]):
        # the one granted last: whoever puts leases back in order comes to it at the end
        looks["renew"].append(Look(lambda api=renews, node=node, lease=mine[last]: good(
            api.renew(f"{number}/{node.pid}/{last}", lease_id=lease, ttl_ms=LONG_TTL))))
        looks["grant"].append(Look(lambda api=tries, node=node: good(api.acquire(f"{number}/new/{node.pid}"))))
        looks["waiter"].append(Look(lambda api=waits, node=node: good(api.acquire(f"{number}/wait/{node.pid}", wait_ms=60_000))))
    until(house.reachable, PATIENCE_S, "Redis can be reached", every_s=0.001)
    zero = time.monotonic()
    took = {what: [look.after(zero) for look in some] for what, some in looks.items()}
    for api in apis:
        api.close()
    house.mend()
    for node, mine in zip(nodes, leases):
        for i, lease in enumerate(mine):
            until(lambda: node.api().release(f"{number}/{node.pid}/{i}", lease_id=lease)[0] in (200, 410), PATIENCE_S, "it is given up")
    return {"renew": max(took["renew"]), "grant": min(took["grant"]), "waiter": max(took["waiter"])}


HOUSES = {"single": Single, "sentinel": Sentinel}


def measure(house_name, rounds, window_s=None, say=print):
    """A list for each figure, in seconds."""
    world = World()
    world.failed = True  # until it is known better
    try:
        house = HOUSES[house_name](world)
        house.window_s = window_s or house.window_s
        nodes = [world.pawld(house.url, ["--recovery-window", f"{house.window_s * 1000:.0f}ms"]) for _ in range(NODES)]
        figures = {"renew": [], "grant": [], "waiter": []}
        for number in range(rounds):
            for what, value in one_round(house, nodes, number, (0.2, 0.7, 1.5, 3.0)[number % 4]).items():
                figures[what].append(value)
        world.failed = False
    finally:
        world.close()
    say(f"{house_name}, window {house.window_s:g} s, {rounds} rounds, {NODES} nodes of {LEASES} leases each; ms after Redis could be reached again:")
    for what, values in figures.items():
        say(f"    {what:8} least {min(values) * 1000:6.0f}  median {statistics.median(values) * 1000:6.0f}  most {max(values) * 1000:6.0f}")
    return figures


def main(argv=None):
    parser = argparse.ArgumentParser(prog="recovery", description="how long a loss keeps holders and newcomers waiting")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--house", choices=sorted(HOUSES), default="single")
    parser.add_argument("--window", type=float, metavar="SECONDS", help="the recovery window (3, or 4 under sentinels)")
    options = parser.parse_args(argv)
    measure(options.house, options.rounds, options.window)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
