"""The figures that pawl wants to reach, by the part of the work that set them, and which of them a run's results hold. None is asserted: a
busy machine is no bug."""

from statistics import median


class Figures:
    """Medians over a run's rounds. A missing figure is None: that part wasn't measured."""

    def __init__(self, results):
        self.results = results

    def rounds(self, connections):
        return next((c["rounds"] for c in self.results.get("cycles", []) if c["connections"] == connections), None)

    def ratios(self, connections, over, under, read):
        """read(over) / read(under) of each round, sorted."""
        rounds = self.rounds(connections)
        return sorted(read(r[over]) / read(r[under]) for r in rounds) if rounds else None

    def ratio(self, connections, over, under, read):
        values = self.ratios(connections, over, under, read)
        return median(values) if values else None

    def handover(self, waiters, read):
        rounds = next((h["rounds"] for h in self.results.get("handover", []) if h["waiters"] == waiters), None)
        return median(read(r) for r in rounds) if rounds else None

    def part(self, name, read):
        return read(self.results[name]) if name in self.results else None


def rate(r):
    return r["rate"]


def redis_cpu(r):
    return r["redis_cpu_us_per_cycle"]


def middle(r):
    return r["cycle_us"]["p50"]


def growth(names):
    return names["pawld_rss_kib_after"] - names["pawld_rss_kib_before"]


def own_cpu_ratio(f, connections):
    rounds = f.rounds(connections)
    return median(r["pawl tcp"]["pawld_cpu_us_per_cycle"] / redis_cpu(r["direct tcp"]) for r in rounds) if rounds else None


def tail_ratio(f, connections):
    rounds = f.rounds(connections)
    return median(r["pawl tcp"]["cycle_us"]["p99"] / r["pawl tcp"]["cycle_us"]["p50"] for r in rounds) if rounds else None


def trips(q):
    """A quantile of the hand-over in medians of the PUBLISH trip."""
    return lambda r: r["handover"]["handover_us"][q] / r["publish"]["trip_us"]["p50"]


def unix_gain(f):
    return f.ratio(64, "pawl unix", "pawl tcp", rate)


# Part, what, comparison, limit, unit, figure.
TARGETS = [
    ("first light", "cycles at 64 connections over TCP, of direct", ">=", 0.6, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", rate)),
    ("first light", "Redis' CPU per cycle, of direct", "<=", 0.6, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", redis_cpu)),
    ("first light", "keys left by cycles on distinct names", "<=", 0, "", lambda f: f.part("names", lambda n: len(n["keys_left"]))),
    ("first light", "pawld's growth by them", "<=", 2048, "KiB", lambda f: f.part("names", growth)),
    ("first light", "memory of an idle connection", "<", 8192, "B", lambda f: f.part("idle", lambda m: m["bytes_each"])),
    ("waiting", "hand-over, 50 waiters, median in PUBLISH trips", "<=", 4, "", lambda f: f.handover(50, trips("p50"))),
    ("waiting", "hand-over, 50 waiters, p99 in median PUBLISH trips", "<=", 10, "", lambda f: f.handover(50, trips("p99"))),
    ("waiting", "memory of a parked waiter", "<", 16384, "B", lambda f: f.part("parked", lambda m: m["bytes_each"])),
    ("speed", "cycles at 64 connections over TCP, of direct", ">=", 0.75, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", rate)),
    ("speed", "cycles at 256 connections over TCP, of direct", ">=", 0.8, "", lambda f: f.ratio(256, "pawl tcp", "direct tcp", rate)),
    ("speed", "cycles at 64 over a unix socket, of TCP", ">", 1, "", unix_gain),
    ("speed", "one client's median cycle, of direct", "<=", 2, "", lambda f: f.ratio(1, "pawl tcp", "direct tcp", middle)),
    ("speed", "pawld's CPU per cycle, of Redis' in direct", "<=", 1, "", lambda f: own_cpu_ratio(f, 64)),
    ("speed", "Redis' CPU per cycle, of direct", "<=", 0.5, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", redis_cpu)),
    # The node's heartbeat is in the count, hence the hundredth.
    ("speed", "scripts per uncontended cycle", "<=", 2.01, "", lambda f: f.part("commands", lambda c: c["pawl"]["scripts"])),
    ("speed", "p99 of a cycle at 64, in its median", "<=", 2.5, "", lambda f: tail_ratio(f, 64)),
    ("speed", "hand-over, 50 waiters, median in PUBLISH trips", "<=", 3, "", lambda f: f.handover(50, trips("p50"))),
    ("speed", "scripts per hand-over, 50 waiters", "<=", 2.1, "", lambda f: f.handover(50, lambda r: r["scripts_per_handover"])),
    ("speed", "memory of an idle connection", "<=", 4096, "B", lambda f: f.part("idle", lambda m: m["bytes_each"])),
    ("speed", "memory of a parked waiter", "<=", 8192, "B", lambda f: f.part("parked", lambda m: m["bytes_each"])),
    ("speed", "ready after its start", "<=", 50, "ms", lambda f: f.part("ready_ms", lambda ms: ms)),
]

COMPARE = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, "<": lambda a, b: a < b}


def judge(results):
    """[{part, what, target, value, verdict}]; verdict is holds, misses or "not measured"."""
    figures = Figures(results)
    lines = []
    for part, what, sign, limit, unit, read in TARGETS:
        value = read(figures)
        verdict = "not measured" if value is None else "holds" if COMPARE[sign](value, limit) else "misses"
        target = f"{sign} {limit} {unit}".rstrip()
        lines.append({"part": part, "what": what, "target": target, "value": value, "verdict": verdict})
    return lines
