#!/usr/bin/python3
"""What the plain cases of the scripts save: Redis' time for a run of each script, as it is and without its plain case, by INFO commandstats.

    tests/bench/script_cost.py [RUNS]
"""

import os
import random
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "lib"), os.path.join(TESTS, "system")]

from pawltest.redis import RedisServer  # noqa: E402
from test_plain_cases import GENERATION, IDS, INCARNATION, LIFE, OWN, Bench, Scene, forms  # noqa: E402

ROUNDS = 5
CALLS = {
    "release.lua": [IDS[0], OWN, 50, IDS[1], 20000, f"{OWN} 21 2000 me"],
    "renew.lua": [IDS[0], 20000, OWN, 31, 50, "1000 me", "0 0"],
}


def contended_scene():
    """A lease of this node, and three waiters of it."""
    scene = Scene(random.Random(1))
    scene.fence, scene.window, scene.holder = 90, False, IDS[0]
    scene.stored = f"{IDS[0]} 50 {OWN} 4 1000 me"
    scene.waiting = [(10 + i, IDS[i], f"{OWN} {LIFE} {20 + i}") for i in (1, 2, 3)]
    return scene


def cost_us(bench, scene, body, arguments, runs):
    sha = bench.conn.command("SCRIPT", "LOAD", body)
    bench.conn.command("CONFIG", "RESETSTAT")
    for _ in range(runs):
        bench.all([*scene.commands(), ("EVALSHA", sha, len(scene.keys()), *scene.keys(), INCARNATION, "9", GENERATION, *arguments)])
    told = bench.conn.command("INFO", "commandstats")
    line = next(line for line in told.splitlines() if line.startswith("cmdstat_evalsha:"))
    return float(line.split("usec_per_call=")[1].split(",")[0])


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    redis = RedisServer().start()
    try:
        bench, scene = Bench(redis), contended_scene()
        for name, arguments in CALLS.items():
            bodies = forms(name)[:2]
            pairs = [[cost_us(bench, scene, body, arguments, runs) for body in bodies] for _ in range(ROUNDS)]
            whole, general = sorted(pairs, key=lambda pair: pair[0] / pair[1])[ROUNDS // 2]
            print(f"{name}: {whole:.1f} us instead of {general:.1f}: {whole / general:.2f}")
    finally:
        redis.close()


if __name__ == "__main__":
    main()
