"""The measurements: each runs the load some times and returns plain data. Whatever is compared is interleaved, so that a machine that slows
down slows both sides."""

import json
import os
import subprocess
import sys

from servers import BenchError, Pawld, RedisClient, rss_kib

LOAD_DEADLINE = 600


def tell(text):
    print(text, file=sys.stderr, flush=True)


def run_load(program, *args):
    """One run of the load; its JSON object. A fault in it ends the benchmark: figures from runs with errors mean nothing."""
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=LOAD_DEADLINE, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    try:
        reason = json.loads(done.stdout)["first_error"]
    except (ValueError, KeyError):
        reason = done.stderr.strip() or done.stdout.strip()
    raise BenchError(f"load {' '.join(map(str, args))}: {reason}")


def scripts(calls):
    return sum(calls.get(name, 0) for name in ("evalsha", "eval"))


class Bench:
    """What all measurements need: the servers, the load, and the captured commands' file."""

    def __init__(self, pawld_program, load, folder, redis, pawld, connections_max):
        self.pawld_program = pawld_program
        self.load = load
        self.folder = folder
        self.redis = redis
        self.pawld = pawld
        self.connections_max = connections_max
        self.commands = os.path.join(folder, "commands")
        self.client = RedisClient(redis.path)

    def fresh_pawld(self, name):
        """A second pawld on the same Redis, to be weighed: the first one's memory has been through a lot."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        pawld = Pawld(self.pawld_program, folder, self.redis, self.connections_max)
        try:
            pawld.wait_ready()
        except BaseException:
            pawld.stop()
            raise
        return pawld

    # ---- lock cycles ----

    def one_round(self, side, transport, connections, seconds, warm_up):
        """One run of one side, with CPU time and Redis' commands per cycle."""
        args = ["--connections", connections, "--seconds", seconds, "--warm-up", warm_up,
                "--cpu-pid", self.redis.pid, "--cpu-pid", self.pawld.pid]
        if side == "pawl":
            result = run_load(self.load, "http", "--to", getattr(self.pawld, transport), *args)
        else:
            result = run_load(self.load, "redis", "--to", getattr(self.redis, transport), "--commands", self.commands, *args)
        cycles = result["cycles"]
        if cycles == 0:
            raise BenchError(f"not one cycle in {seconds} s of {side} over {transport} with {connections} connections")
        result["redis_cpu_us_per_cycle"] = result["cpu_us"][0] / cycles
        result["pawld_cpu_us_per_cycle"] = result["cpu_us"][1] / cycles
        result["load_cpu_us_per_cycle"] = result["own_cpu_us"] / cycles
        return result

    def cycles(self, connection_counts, rounds, seconds, warm_up):
        """[{connections, rounds: [{"direct tcp", "pawl tcp", "direct unix", "pawl unix"}]}]"""
        results = []
        for connections in connection_counts:
            results.append({"connections": connections, "rounds": []})
            for number in range(rounds):
                tell(f"lock cycles, {connections} connections, round {number + 1} of {rounds}")
                results[-1]["rounds"].append({
                    f"{side} {transport}": self.one_round(side, transport, connections, seconds, warm_up)
                    for transport in ("tcp", "unix") for side in ("direct", "pawl")})
        return results

    def commands_per_cycle(self, count):
        """From commandstats around a counted run: the scripts that clients called, and all commands, those inside scripts too."""
        sides = {}
        for side, args in (("direct", ["redis", "--to", self.redis.tcp, "--commands", self.commands]),
                           ("pawl", ["http", "--to", self.pawld.tcp])):
            before = self.client.command_calls()
            result = run_load(self.load, *args, "--connections", 64, "--count", count)
            after = self.client.command_calls()
            calls = {name: (n - before.get(name, 0)) / result["cycles"] for name, n in after.items() if n > before.get(name, 0)}
            calls.pop("info", None)  # our own question
            sides[side] = {"scripts": scripts(calls), "all": sum(calls.values()), "by_name": calls}
        return sides

    # ---- memory ----

    def names(self, count):
        """Cycles on as many names: what they leave behind, in Redis and in pawld."""
        tell(f"{count} cycles on {count} names")
        pawld = self.fresh_pawld("names")
        try:
            run_load(self.load, "http", "--to", pawld.tcp, "--connections", 64, "--count", max(1, count // 10))
            keys, size, rss, used = self.census(pawld)
            result = run_load(self.load, "http", "--to", pawld.tcp, "--connections", 64, "--count", count)
            keys_after, size_after, rss_after, used_after = self.census(pawld)
        finally:
            pawld.stop()
        return {"cycles": result["cycles"], "dbsize_before": size, "dbsize_after": size_after, "keys_left": sorted(keys_after - keys),
                "pawld_rss_kib_before": rss, "pawld_rss_kib_after": rss_after,
                "redis_used_bytes_before": used, "redis_used_bytes_after": used_after}

    def census(self, pawld):
        keys = {key.decode(errors="replace") for key in self.client("KEYS", "*")}
        memory = dict(line.split(":", 1) for line in self.client("INFO", "memory").decode().splitlines() if ":" in line)
        return keys, self.client("DBSIZE"), rss_kib(pawld.pid), int(memory["used_memory"])

    def connections_memory(self, count, transport="tcp", park=False):
        """pawld's memory for each idle connection, or with park for each connection that waits for a lock."""
        count = min(count, self.connections_max - 100)
        tell(f"memory of {count} {'parked' if park else 'idle'} connections")
        pawld = self.fresh_pawld("parked" if park else "idle")
        argv = [self.load, "idle", "--to", getattr(pawld, transport), "--connections", str(count)] + (["--park"] if park else [])
        try:
            run_load(self.load, "http", "--to", pawld.tcp, "--connections", 1, "--count", 100)
            before = rss_kib(pawld.pid)
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                told = json.loads(child.stdout.readline() or '{"first_error": "it said nothing"}')
                during = rss_kib(pawld.pid)
                child.stdin.close()
            if told["first_error"] is not None:
                raise BenchError(f"{' '.join(argv)}: {told['first_error']}")
        finally:
            pawld.stop()
        return {"connections": count, "rss_kib_before": before, "rss_kib_during": during, "bytes_each": (during - before) * 1024 / count}

    # ---- waiting ----

    def check_waiting(self):
        """Early and in words, rather than after minutes: can this pawld wait at all?"""
        try:
            run_load(self.load, "handover", "--to", self.pawld.tcp, "--connections", 1, "--count", 1)
        except BenchError as e:
            raise BenchError(f"handover and parked need a pawld that can wait; this one, asked to: {e}") from e

    def handover(self, waiter_counts, rounds, seconds):
        """[{waiters, rounds: [{"publish", "handover", "scripts_per_handover"}]}]"""
        results = []
        for waiters in waiter_counts:
            results.append({"waiters": waiters, "rounds": []})
            for number in range(rounds):
                tell(f"hand-over, {waiters} waiters, round {number + 1} of {rounds}")
                publish = run_load(self.load, "publish", "--to", self.redis.tcp, "--seconds", seconds / 2)
                before = scripts(self.client.command_calls())
                passed = run_load(self.load, "handover", "--to", self.pawld.tcp, "--connections", waiters, "--seconds", seconds)
                # What the load asked on its own account, to know that all are queued, is no part of a hand-over: one script each time.
                called = scripts(self.client.command_calls()) - before - passed["inspections"]
                results[-1]["rounds"].append({"publish": publish, "handover": passed, "scripts_per_handover": called / passed["handovers"]})
        return results
