"""The measurements: each runs the load some times and returns plain data. Whatever is compared is interleaved, so that a machine that slows
down slows all sides."""

import json
import os
import shutil
import subprocess
import sys

from servers import BenchError, Pawld, RedisClient, rss_kib

LOAD_DEADLINE = 600
HERE = os.path.dirname(os.path.abspath(__file__))
NODES = 4
# kazoo needs threads: beyond that it measures Python's scheduler.
KAZOO_CLIENTS_MAX = 64


def tell(text):
    print(text, file=sys.stderr, flush=True)


def run_load(program, *args):
    """One run of the load; its JSON object. A fault in it ends the benchmark: figures from runs with errors mean nothing."""
    argv = [*([program] if isinstance(program, str) else program), *map(str, args)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LOAD_DEADLINE, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    try:
        reason = json.loads(done.stdout)["first_error"]
    except (ValueError, KeyError):
        reason = done.stderr.strip() or done.stdout.strip()
    raise BenchError(f"{' '.join(argv)}: {reason}")


def called(calls, *names):
    return sum(calls.get(name, 0) for name in names)


def scripts(calls):
    return called(calls, "evalsha", "eval")


class Bench:
    """What all measurements need: the servers, the load, and the captured commands' file. rivals is {"etcd": Etcd, "etcd-memory": Etcd,
    "kazoo": ZooKeeper} or less."""

    def __init__(self, pawld_program, load, folder, redis, pawld, rivals, connections_max):
        self.pawld_program = pawld_program
        self.load = load
        self.kazoo = ["/usr/bin/python3", "-B", os.path.join(HERE, "kazoo_load.py")]
        self.folder = folder
        self.redis = redis
        self.pawld = pawld
        self.rivals = rivals
        self.connections_max = connections_max
        self.commands = os.path.join(folder, "commands")
        self.client = RedisClient(redis.path)

    def fresh_pawld(self, name):
        """Another pawld on the same Redis: to be weighed, as the first one's memory has been through a lot, or for its start."""
        pawld = Pawld(self.pawld_program, os.path.join(self.folder, name), self.redis, self.connections_max)
        try:
            pawld.ready_ms = pawld.wait_ready() * 1000
        except BaseException:
            pawld.stop()
            raise
        return pawld

    # ---- lock cycles ----

    def cycle_sides(self, connections):
        sides = [("direct", "tcp"), ("pawl", "tcp"), ("direct", "unix"), ("pawl", "unix")]
        if "etcd" in self.rivals:
            sides += [("etcd", "tcp"), ("etcd-lease", "tcp"), ("etcd-memory", "tcp")]
        if "kazoo" in self.rivals and connections <= KAZOO_CLIENTS_MAX:
            sides.append(("kazoo", "tcp"))
        return sides

    def one_round(self, side, transport, connections, seconds, warm_up):
        """One run of one side, with CPU time of the server that was worked, of Redis where it was, and of the load, per cycle."""
        args = ["--connections", connections, "--seconds", seconds, "--warm-up", warm_up]
        pids = {"redis": self.redis.pid, "pawld": self.pawld.pid}
        if side == "pawl":
            argv = [self.load, "http", "--to", getattr(self.pawld, transport)]
        elif side == "direct":
            argv = [self.load, "redis", "--to", getattr(self.redis, transport), "--commands", self.commands]
        elif side == "kazoo":
            argv, pids = [*self.kazoo, "cycles", "--to", self.rivals["kazoo"].tcp], {}
        else:
            mode, etcd = (side, "etcd") if side == "etcd-lease" else ("etcd", side)
            argv, pids = [self.load, mode, "--to", self.rivals[etcd].tcp], {"etcd": self.rivals[etcd].pid}
        for pid in pids.values():
            args += ["--cpu-pid", pid]
        result = run_load(argv, *args)
        cycles = result["cycles"]
        if cycles == 0:
            raise BenchError(f"not one cycle in {seconds} s of {side} over {transport} with {connections} connections")
        for name, cpu_us in zip(pids, result["cpu_us"]):
            result[f"{name}_cpu_us_per_cycle"] = cpu_us / cycles
        result["load_cpu_us_per_cycle"] = result["own_cpu_us"] / cycles
        result["load_cores"] = result["own_cpu_us"] / 1e6 / result["seconds"]
        return result

    def cycles(self, connection_counts, rounds, seconds, warm_up):
        """[{connections, rounds: [{"direct tcp", "pawl tcp", "direct unix", "pawl unix", "etcd tcp", ...}]}]"""
        results = []
        for connections in connection_counts:
            results.append({"connections": connections, "rounds": []})
            for number in range(rounds):
                tell(f"lock cycles, {connections} connections, round {number + 1} of {rounds}")
                results[-1]["rounds"].append({f"{side} {transport}": self.one_round(side, transport, connections, seconds, warm_up)
                                              for side, transport in self.cycle_sides(connections)})
        return results

    def commands_per_cycle(self, count):
        """From commandstats around counted runs: the scripts that clients called, and all commands, those inside scripts too."""
        sides = {}
        direct = ["redis", "--to", self.redis.tcp, "--commands", self.commands]
        pawl = ["http", "--to", self.pawld.tcp]
        for side, connections, args in (("direct", 64, direct), ("pawl, 1 client", 1, pawl), ("pawl, 64 clients", 64, pawl)):
            before = self.client.command_calls()
            result = run_load(self.load, *args, "--connections", connections, "--count", count)
            after = self.client.command_calls()
            calls = {name: (n - before.get(name, 0)) / result["cycles"] for name, n in after.items() if n > before.get(name, 0)}
            calls.pop("info", None)  # our own question
            sides[side] = {"scripts": scripts(calls), "all": sum(calls.values()), "by_name": calls}
        return sides

    def nodes(self, rounds, seconds, warm_up, connections=64):
        """[{nodes, rounds: [load's result]}]: the same load, spread over one to four nodes on one Redis."""
        results = [{"nodes": n + 1, "rounds": []} for n in range(NODES)]
        nodes = []
        try:
            nodes += [self.fresh_pawld(f"node{n}") for n in range(NODES)]
            for number in range(rounds):
                tell(f"one to {NODES} nodes, round {number + 1} of {rounds}")
                for entry in results:
                    args = ["--connections", connections, "--seconds", seconds, "--warm-up", warm_up, "--cpu-pid", self.redis.pid]
                    for node in nodes[:entry["nodes"]]:
                        args += ["--to", node.tcp, "--cpu-pid", node.pid]
                    result = run_load(self.load, "http", *args)
                    result["redis_cpu_us_per_cycle"] = result["cpu_us"][0] / result["cycles"]
                    result["pawld_cpu_us_per_cycle"] = sum(result["cpu_us"][1:]) / result["cycles"]
                    entry["rounds"].append(result)
        finally:
            for node in nodes:
                node.stop()
        return results

    # ---- instructions ----

    def instructions(self, count):
        """{what: instructions of pawld's own per cycle or hand-over}, kernel not included, by callgrind: two runs, one of them thrice as long,
        so that the start is not in the difference. A figure that noise can't touch. {} without valgrind."""
        valgrind = shutil.which("valgrind")
        if not valgrind:
            tell("valgrind is not installed: instructions are left out")
            return {}
        results = {}
        for what, mode, connections in (("cycle, 1 connection", "http", 1), ("cycle, 64 connections", "http", 64),
                                        ("hand-over, 50 waiters", "handover", 50)):
            tell(f"instructions of a {what}")
            short, long = [self.count_instructions(valgrind, mode, connections, n) for n in (count, 3 * count)]
            results[what] = (long - short) / (2 * count)
        return results

    def count_instructions(self, valgrind, mode, connections, count):
        folder = os.path.join(self.folder, "instructions")
        out = os.path.join(folder, "callgrind.out")
        before = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}"]
        pawld = Pawld(self.pawld_program, folder, self.redis, self.connections_max, run_by=before)
        try:
            pawld.wait_ready()
            result = run_load(self.load, mode, "--to", pawld.tcp, "--connections", connections, "--count", count)
        finally:
            pawld.stop()
        with open(out, encoding="ascii", errors="replace") as f:
            total = next(int(line.split()[1]) for line in f if line.startswith("totals:"))
        done = result["cycles"] if mode == "http" else result["handovers"]
        return total * count / done  # hand-overs end with their wave

    # ---- start ----

    def start(self, count):
        """Milliseconds from exec to the first 200 of /readyz, each time of a new process."""
        tell(f"{count} starts")
        times = []
        for number in range(count):
            pawld = self.fresh_pawld(f"start{number}")
            pawld.stop()
            times.append(pawld.ready_ms)
        return times

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
        return keys, self.client("DBSIZE"), rss_kib(pawld.pid), self.used_memory()

    def used_memory(self):
        memory = dict(line.split(":", 1) for line in self.client("INFO", "memory").decode().splitlines() if ":" in line)
        return int(memory["used_memory"])

    def weigh(self, what, count):
        """pawld's memory, and Redis', for each idle connection, each connection that waits for a lock, or each lease that is held."""
        count = count if what == "leases" else min(count, self.connections_max - 100)
        tell(f"memory of {count} {what}")
        pawld = self.fresh_pawld(what)
        argv = [self.load, "idle", "--to", pawld.tcp]
        argv += ["--leases", str(count)] if what == "leases" else ["--connections", str(count)]
        argv += ["--park"] if what == "parked" else []
        try:
            run_load(self.load, "http", "--to", pawld.tcp, "--connections", 1, "--count", 100)
            _, _, before, used = self.census(pawld)
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                told = json.loads(child.stdout.readline() or '{"first_error": "it said nothing"}')
                during, used_during = rss_kib(pawld.pid), self.used_memory()
                child.stdin.close()
            if told["first_error"] is not None:
                raise BenchError(f"{' '.join(argv)}: {told['first_error']}")
        finally:
            pawld.stop()
        return {"count": count, "rss_kib_before": before, "rss_kib_during": during, "bytes_each": (during - before) * 1024 / count,
                "redis_bytes_each": (used_during - used) / count}

    # ---- waiting ----

    def handover_round(self, side, waiters, seconds):
        """One side's hand-overs, with what they cost. What the load asked on its own account, to know that all are queued, is no part of a
        hand-over: it is one script of pawl's each time."""
        args = ["--connections", waiters, "--seconds", seconds]
        if side == "kazoo":
            return run_load(self.kazoo, "handover", "--to", self.rivals["kazoo"].tcp, *args)
        if side.startswith("etcd"):
            return run_load(self.load, "handover-etcd", "--to", self.rivals[side].tcp, "--cpu-pid", self.rivals[side].pid, *args)
        pids = ["--cpu-pid", self.redis.pid, "--cpu-pid", self.pawld.pid]
        before = self.client.command_calls()
        if side == "poll":
            result = run_load(self.load, "handover-poll", "--to", self.redis.tcp, *pids, *args)
            # what it calls itself; its script calls others, but not SET
            asked = called(self.client.command_calls(), "eval", "set") - called(before, "eval", "set")
        else:
            result = run_load(self.load, "handover", "--to", self.pawld.tcp, "--trips", self.redis.tcp, *pids, *args)
            asked = scripts(self.client.command_calls()) - scripts(before) - result["inspections"]
        result["commands_per_handover"] = asked / result["handovers"]
        return result

    def handover(self, waiter_counts, rounds, seconds):
        """[{waiters, rounds: [{"pawl", "etcd", "etcd-memory", "poll", "kazoo", "publish"}]}]; publish is the trip in a loop of its own"""
        sides = ["pawl", *[side for side in ("etcd", "etcd-memory") if side in self.rivals], "poll", *(["kazoo"] if "kazoo" in self.rivals else [])]
        results = []
        for waiters in waiter_counts:
            results.append({"waiters": waiters, "rounds": []})
            for number in range(rounds):
                tell(f"hand-over, {waiters} waiters, round {number + 1} of {rounds}")
                entry = {side: self.handover_round(side, waiters, seconds) for side in sides}
                entry["publish"] = run_load(self.load, "publish", "--to", self.redis.tcp, "--seconds", seconds / 4)
                results[-1]["rounds"].append(entry)
        return results
