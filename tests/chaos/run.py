"""A chaos run: python3 -m chaos.run --seconds N --seed S --house single|sentinel

Several pawlds over one Redis, or over a master and its replica under sentinels; dozens of clients after a few hot locks, and faults by
dice: tests/chaos/faults.py has the lists. All that happens goes into a history (history.py), which is judged when the run is over (checker.py). Then everything is mended, and it must work again: each node grants
each lock, and nothing is left in Redis.

The seed decides which scenes the clients play and which faults come; it doesn't decide who is first at a lock, so a run can't be repeated exactly.
What can be looked at is the history: it and all logs are kept when anything is wrong, and named. Exit code 0: nothing is wrong.
"""

import argparse
import collections
import os
import random
import shutil
import sys
import time

from chaos import checker, faults, history as histories
from chaos.clients import Crowd
from chaos.house import House, SentinelHouse
from pawltest.process import socket_folder
from pawltest.redis import RespError
from pawltest.residue import until_clean
from pawltest.wait import until

LOCKS = ["hot/a", "hot/b", "hot/c", "hot/d"] + [f"calm/{i}" for i in range(8)]

Plan = collections.namedtuple("Plan", "house nodes clients window kinds rests")
HOUSES = {
    "single": Plan(House, 4, 36, "3s", faults.FAULTS, faults.RESTS_S),
    "sentinel": Plan(SentinelHouse, 3, 24, "4s", faults.SENTINEL_FAULTS, (0.3, 2.0, 6.0)),
}
# What has to be found: (house, name) -> what is other than planned
SABOTAGE = {
    ("single", "delete-locks"): {"kinds": faults.DELETE_LOCKS, "rests": (1.0, 2.0)},
    ("single", "no-window"): {"kinds": faults.LOSSES_ONLY, "window": "0", "rests": (1.0, 2.0)},
    ("sentinel", "no-window"): {"kinds": faults.FAR_BEHIND, "window": "0", "rests": (1.0, 2.0)},
}


class Run:
    """One run; .verdict and .problems say what was wrong. `count` ends it after so many faults of Redis, if `seconds` don't before."""

    def __init__(self, seconds, seed, sabotage=None, house="single", clients=None, kinds=None, rests=None, count=None, say=print):
        self.seconds, self.seed, self.sabotage, self.count, self.say = seconds, seed, sabotage, count, say
        self.house_name, self.plan = house, HOUSES[house]._replace(**(SABOTAGE[house, sabotage] if sabotage else {}))
        self.plan = self.plan._replace(kinds=kinds or self.plan.kinds, clients=clients or self.plan.clients, rests=rests or self.plan.rests)
        self.folder = socket_folder()
        self.path = os.path.join(self.folder, "history.jsonl")
        self.problems = []
        self.verdict = None
        self.counts, self.starved = {}, 0  # faults made, by name; how often a node or we ourselves got no processor
        self.kept = []

    def go(self):
        """True if nothing is wrong. The history of a run that went wrong stays where it is."""
        plan = self.plan
        self.say(f"chaos: seed {self.seed}, {self.seconds} s, house {self.house_name}, {plan.nodes} nodes, {plan.clients} clients, {len(LOCKS)} locks"
                 + (f", sabotage {self.sabotage}" if self.sabotage else ""))
        log = histories.History(self.path)
        log.add("note", what="run", seed=self.seed, seconds=self.seconds, house=self.house_name, sabotage=self.sabotage)
        house = plan.house(plan.nodes, log, plan.window)
        good = False
        try:
            self._play(house, log)
            self.problems += house.problems
            self.verdict = checker.judge(histories.read(self.path))
            good = not self.problems and not self.verdict.violations
        finally:
            house.close(keep=not good)
            log.close()
            if good:
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                self.kept = [self.folder] + house.folders()
                self.say(f"chaos: seed {self.seed}: something is wrong; history {self.path}, logs in {' '.join(house.folders())}")
        return good

    def discard(self):
        """Removes what a run that went wrong has kept: for one that had to."""
        for folder in self.kept:
            shutil.rmtree(folder, ignore_errors=True)

    def _play(self, house, log):
        # made before there are threads, which a fork would not copy
        crowd = Crowd(self.plan.clients, self.seed, house.sockets, LOCKS, self.path)
        crowd.fork()
        watch = faults.Watch(house, log)
        try:
            house.start()
            watch.start()
            crowd.start()
            director = faults.Director(house, log, self.seed, self.plan.kinds, self.plan.rests, self.count)
            director.run(self.seconds)
            self.counts, self.starved = director.counts, sum(watch.counts.values())
            self.say(f"chaos: faults {dict(director.counts)}; short of processor {dict(watch.counts)}")
            crowd.stop()
            if not self.sabotage:
                self._mended(house)
        except AssertionError as error:
            self.problems.append(str(error))
        finally:
            crowd.kill()
            watch.stop()
        house.finish()

    def _mended(self, house):
        """With nothing in the way any more, each node grants each lock within the leases that are left, and nothing stays."""
        for _ in house.settling():
            time.sleep(0.1)
        house.wait_ready()
        for i, node in enumerate(house.nodes):
            api = node.api()
            for lock in LOCKS:
                grant = until(lambda: self._granted(api, lock), 60.0, f"node {i} grants {lock} again")
                api.must("release", lock, lease_id=grant["lease_id"])
        try:
            until_clean(house, 60.0)
        except (OSError, RespError) as error:
            self.problems.append(repr(error))

    @staticmethod
    def _granted(api, lock):
        status, value = api.acquire(lock, ttl_ms=5000, wait_ms=5000)
        return value if status == 200 else None


def main(argv=None):
    parser = argparse.ArgumentParser(prog="chaos", description="faults by dice against several pawlds")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults are made (60)")
    parser.add_argument("--seed", type=int, default=None, help="what the dice start from (random)")
    parser.add_argument("--house", choices=sorted(HOUSES), default="single", help="one Redis, or master, replica and three sentinels (single)")
    parser.add_argument("--clients", type=int, help="how many (36, or 24 under sentinels)")
    parser.add_argument("--sabotage", choices=sorted({name for _, name in SABOTAGE}), help="break a promise behind pawl's back; the run has to fail")
    parser.add_argument("--judge", metavar="HISTORY", help="only judge this history again")
    options = parser.parse_args(argv)
    if options.sabotage and (options.house, options.sabotage) not in SABOTAGE:
        parser.error(f"there is no such sabotage in house {options.house}")
    if options.judge:
        verdict = checker.judge(histories.read(options.judge))
        print(verdict.report())
        return 1 if verdict.violations else 0
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    started = time.monotonic()
    run = Run(options.seconds, seed, options.sabotage, options.house, options.clients)
    good = run.go()
    if run.verdict:
        print(run.verdict.report())
    for problem in run.problems:
        print(f"problem: {problem}")
    print(f"chaos: seed {seed}: {'nothing is wrong' if good else 'FAILED'} after {time.monotonic() - started:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
