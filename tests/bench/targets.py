"""The figures that pawl wants to reach, and which of them a run's results hold. None is asserted: a busy machine is no bug."""

from statistics import median


class Figures:
    """Medians over a run's rounds. A missing figure is None: that part wasn't measured."""

    def __init__(self, results):
        self.results = results

    def rounds(self, connections):
        return next((c["rounds"] for c in self.results.get("cycles", []) if c["connections"] == connections), [])

    def ratios(self, connections, over, under, read, read_under=None):
        """read(over) / read_under(under) of each round in which both were run, sorted."""
        return sorted(read(r[over]) / (read_under or read)(r[under]) for r in self.rounds(connections) if over in r and under in r)

    def ratio(self, *args):
        values = self.ratios(*args)
        return median(values) if values else None

    def handover(self, waiters, read, needs="pawl"):
        rounds = next((h["rounds"] for h in self.results.get("handover", []) if h["waiters"] == waiters), [])
        values = [read(r) for r in rounds if needs in r]
        return median(values) if values else None

    def part(self, name, read):
        return read(self.results[name]) if name in self.results else None

    def nodes(self, count):
        """The rate of so many nodes over that of one, round by round."""
        entries = self.results.get("nodes", [])
        if len(entries) < count:
            return None
        return median(a["rate"] / b["rate"] for a, b in zip(entries[count - 1]["rounds"], entries[0]["rounds"]))


def rate(r):
    return r["rate"]


def redis_cpu(r):
    return r["redis_cpu_us_per_cycle"]


def pawld_cpu(r):
    return r["pawld_cpu_us_per_cycle"]


def middle(r):
    return r["cycle_us"]["p50"]


def tail(r):
    return r["cycle_us"]["p99"]


def growth(names):
    return names["pawld_rss_kib_after"] - names["pawld_rss_kib_before"]


def each(m):
    return m["bytes_each"]


def trips(r):
    """The median hand-over in medians of the loop of PUBLISH trips in the same round."""
    return r["pawl"]["handover_us"]["p50"] / r["publish"]["trip_us"]["p50"]


def of(rival, q):
    return lambda r: r["pawl"]["handover_us"][q] / r[rival]["handover_us"][q]


def handovers(waiters):
    what = f"hand-over, {waiters} waiter{'s' if waiters > 1 else ''}"
    return [
        (f"{what}: median, in median PUBLISH trips", "<=", 3, "", lambda f: f.handover(waiters, trips)),
        (f"{what}: Redis commands each", "<=", 2.1, "", lambda f: f.handover(waiters, lambda r: r["pawl"]["commands_per_handover"])),
        (f"{what}: median, of etcd's", "<=", 0.25, "", lambda f: f.handover(waiters, of("etcd", "p50"), "etcd")),
        (f"{what}: p99, of etcd's", "<=", 0.1, "", lambda f: f.handover(waiters, of("etcd", "p99"), "etcd")),
        (f"{what}: median, of etcd's in memory", "<=", 0.25, "", lambda f: f.handover(waiters, of("etcd-memory", "p50"), "etcd-memory")),
        (f"{what}: p99, of etcd's in memory", "<=", 0.1, "", lambda f: f.handover(waiters, of("etcd-memory", "p99"), "etcd-memory")),
    ]


# What, comparison, limit, unit, figure.
TARGETS = [
    ("cycles at 64 connections over TCP, of direct", ">=", 0.75, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", rate)),
    ("cycles at 256 connections over TCP, of direct", ">=", 0.8, "", lambda f: f.ratio(256, "pawl tcp", "direct tcp", rate)),
    ("cycles at 64 over a unix socket, of those over TCP", ">", 1, "", lambda f: f.ratio(64, "pawl unix", "pawl tcp", rate)),
    ("one client's median cycle, of direct", "<=", 2, "", lambda f: f.ratio(1, "pawl tcp", "direct tcp", middle)),
    ("pawld's CPU per cycle at 64, of Redis' in direct", "<=", 1, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", pawld_cpu, redis_cpu)),
    ("Redis' CPU per cycle at 64, of direct", "<=", 0.5, "", lambda f: f.ratio(64, "pawl tcp", "direct tcp", redis_cpu)),
    # The node's heartbeat is in the count, hence the hundredth.
    ("Redis commands per cycle of one client", "<=", 2.01, "", lambda f: f.part("commands", lambda c: c["pawl, 1 client"]["scripts"])),
    ("cycles at 64 connections, of etcd's", ">=", 10, "", lambda f: f.ratio(64, "pawl tcp", "etcd tcp", rate)),
    ("cycles at 64 connections, of etcd's in memory", ">=", 10, "", lambda f: f.ratio(64, "pawl tcp", "etcd-memory tcp", rate)),
    *handovers(1), *handovers(50), *handovers(500),
    ("p99 of a cycle at 64, in its median", "<=", 2.5, "", lambda f: f.ratio(64, "pawl tcp", "pawl tcp", tail, middle)),
    ("memory of an idle connection", "<=", 4096, "B", lambda f: f.part("idle", each)),
    ("memory of a parked waiter", "<=", 8192, "B", lambda f: f.part("parked", each)),
    ("memory of a held lease", "<=", 512, "B", lambda f: f.part("leases", each)),
    ("keys left by cycles on distinct names", "<=", 0, "", lambda f: f.part("names", lambda n: len(n["keys_left"]))),
    ("pawld's growth by them", "<=", 2048, "KiB", lambda f: f.part("names", growth)),
    ("ready after its start", "<=", 50, "ms", lambda f: f.part("start", median)),
    ("cycles of four nodes, of one's (where cores allow)", ">=", 1.3, "", lambda f: f.nodes(4)),
]

COMPARE = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b}


def judge(results):
    """[{what, target, value, verdict}]; verdict is "holds", "does not hold" or "not measured"."""
    figures = Figures(results)
    lines = []
    for what, sign, limit, unit, read in TARGETS:
        value = read(figures)
        verdict = "not measured" if value is None else "holds" if COMPARE[sign](value, limit) else "does not hold"
        lines.append({"what": what, "target": f"{sign} {limit} {unit}".rstrip(), "value": value, "verdict": verdict})
    return lines
