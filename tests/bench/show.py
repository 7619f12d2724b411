"""The results as tables, for a terminal and for docs/benchmarks.md."""

from statistics import median

from targets import Figures, middle, pawld_cpu, rate, redis_cpu

SIDES = {"pawl tcp": "pawl", "pawl unix": "pawl, unix socket", "direct tcp": "Redis, direct", "direct unix": "Redis, direct, unix socket",
         "etcd tcp": "etcd", "etcd-lease tcp": "etcd, a lease each", "etcd-memory tcp": "etcd, in memory", "kazoo tcp": "ZooKeeper by kazoo",
         "pawl": "pawl", "etcd": "etcd", "etcd-memory": "etcd, in memory", "poll": "SET NX every 50 ms", "kazoo": "ZooKeeper by kazoo"}


class Table:
    """Rows of texts; the first column is left-aligned. key is its place in docs/benchmarks.md."""

    def __init__(self, key, title, heads, rows):
        self.key, self.title, self.heads, self.rows = key, title, heads, rows

    def text(self):
        widths = [max(len(r[i]) for r in [self.heads, *self.rows]) for i in range(len(self.heads))]
        lines = []
        for row in [self.heads, *self.rows]:
            cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
            lines.append(("  " + "  ".join(cells)).rstrip())
        return "\n".join([self.title, *lines])

    def markdown(self):
        rule = ["---", *["---:"] * (len(self.heads) - 1)]
        return "\n".join("| " + " | ".join(row) + " |" for row in [self.heads, rule, *self.rows])


def spread(values, digits=2):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def pick(runs, *keys):
    values = []
    for value in runs:
        for key in keys:
            value = value[key]
        values.append(value)
    return values


def mid(runs, *keys, digits=0):
    """The median over runs of a figure that lies at these keys."""
    return f"{median(pick(runs, *keys)):.{digits}f}"


def sides_of(entry):
    return [side for side in SIDES if all(side in r for r in entry["rounds"])]


def cycle_tables(results):
    figures = Figures(results)
    speed, cpu = [], []
    for entry in results["cycles"]:
        n = entry["connections"]
        for side in sides_of(entry):
            runs = [r[side] for r in entry["rounds"]]
            of_direct = figures.ratios(n, side, "direct tcp", rate)
            speed.append([f"{n}: {SIDES[side]}", spread(pick(runs, "rate"), 0), spread(of_direct), mid(runs, "cycle_us", "p50"),
                          mid(runs, "cycle_us", "p99"), spread(figures.ratios(n, side, "direct tcp", middle)),
                          mid(runs, "load_cores", digits=2)])
    for entry in results["cycles"]:
        n = entry["connections"]
        for transport in ("tcp", "unix"):
            pawl, direct = f"pawl {transport}", f"direct {transport}"
            runs = entry["rounds"]
            cpu.append([f"{n}, {transport}", mid(runs, direct, "redis_cpu_us_per_cycle", digits=1),
                        mid(runs, pawl, "redis_cpu_us_per_cycle", digits=1), spread(figures.ratios(n, pawl, direct, redis_cpu)),
                        mid(runs, pawl, "pawld_cpu_us_per_cycle", digits=1), spread(figures.ratios(n, pawl, direct, pawld_cpu, redis_cpu)),
                        mid(runs, "etcd tcp", "etcd_cpu_us_per_cycle") if "etcd tcp" in runs[0] and transport == "tcp" else ""])
    return [
        Table("cycles", "Lock cycles (acquire, release) by connections: median (least..most) of the rounds",
              ["connections: side", "cycles/s", "of direct TCP", "p50 us", "p99 us", "p50 of direct TCP's", "cores of the load"], speed),
        Table("cpu", "CPU in us per cycle", ["connections", "Redis, direct", "Redis under pawl", "ratio", "pawld", "pawld to Redis direct",
                                             "etcd"], cpu),
        Table("commands", "Redis commands per cycle", ["", "by clients", "all, those inside scripts too"],
              [[side, f"{c['scripts']:.2f}", f"{c['all']:.2f}"] for side, c in results["commands"].items()])]


def grown(label, before, after):
    return [label, str(before), str(after), f"{after - before:+d}"]


def memory_tables(results):
    tables, rows = [], []
    for part, what in (("idle", "idle connection"), ("parked", "parked waiter"), ("leases", "held lease")):
        if part in results:
            m = results[part]
            rows.append([what, str(m["count"]), str(m["rss_kib_before"]), str(m["rss_kib_during"]), f"{m['bytes_each']:.0f}",
                         f"{m['redis_bytes_each']:.0f}"])
    if rows:
        tables.append(Table("memory", "Memory", ["of each", "count", "pawld before, KiB", "with them", "pawld, B each", "Redis, B each"], rows))
    if "names" in results:
        n = results["names"]
        tables.append(Table("names", f"What {n['cycles']} cycles on as many names leave", ["", "before", "after", ""], [
            ["keys in Redis", str(n["dbsize_before"]), str(n["dbsize_after"]), f"{len(n['keys_left'])} left"],
            grown("pawld's memory, KiB", n["pawld_rss_kib_before"], n["pawld_rss_kib_after"]),
            grown("Redis' memory, KiB", n["redis_used_bytes_before"] // 1024, n["redis_used_bytes_after"] // 1024)]))
    return tables


def handover_tables(results):
    rows, trips = [], []
    for entry in results["handover"]:
        n, rounds = entry["waiters"], entry["rounds"]
        for side in sides_of(entry):
            runs = [r[side] for r in rounds]
            rows.append([f"{n}: {SIDES[side]}", spread(pick(runs, "handover_us", "p50"), 0), spread(pick(runs, "handover_us", "p99"), 0),
                         spread([r["pawl"]["handover_us"]["p50"] / r[side]["handover_us"]["p50"] for r in rounds]),
                         spread([r["pawl"]["handover_us"]["p99"] / r[side]["handover_us"]["p99"] for r in rounds]),
                         mid(runs, "commands_per_handover", digits=2) if "commands_per_handover" in runs[0] else ""])
        pawl = [r["pawl"] for r in rounds]
        trips.append([str(n), spread(pick(pawl, "handover_us", "p50"), 0), spread(pick(rounds, "publish", "trip_us", "p50"), 0),
                      spread([r["pawl"]["handover_us"]["p50"] / r["publish"]["trip_us"]["p50"] for r in rounds]),
                      spread(pick(pawl, "trip_us", "p50"), 0), spread([r["handover_us"]["p50"] / r["trip_us"]["p50"] for r in pawl])])
    return [
        Table("handover", "Hand-over, from release sent to grant received; us",
              ["waiters: side", "p50", "p99", "pawl's p50 of it", "pawl's p99 of it", "Redis commands each"], rows),
        Table("trips", "pawl's hand-over and PUBLISH trips, p50; us",
              ["waiters", "hand-over", "trips in a loop", "hand-over to them", "trips between hand-overs", "hand-over to them"], trips)]


def node_table(results):
    one = results["nodes"][0]["rounds"]
    rows = []
    for entry in results["nodes"]:
        runs = entry["rounds"]
        rows.append([str(entry["nodes"]), spread(pick(runs, "rate"), 0), spread([a["rate"] / b["rate"] for a, b in zip(runs, one)]),
                     mid(runs, "cycle_us", "p50"), mid(runs, "cycle_us", "p99"), mid(runs, "redis_cpu_us_per_cycle", digits=1),
                     mid(runs, "pawld_cpu_us_per_cycle", digits=1)])
    return Table("nodes", "Nodes on one Redis, 64 connections over TCP",
                 ["nodes", "cycles/s", "of one node", "p50 us", "p99 us", "Redis us/cycle", "all pawlds us/cycle"], rows)


def tables(results):
    every = []
    if "cycles" in results:
        every += cycle_tables(results)
    if "handover" in results:
        every += handover_tables(results)
    if "nodes" in results:
        every.append(node_table(results))
    every += memory_tables(results)
    if "start" in results:
        every.append(Table("start", "Start, from exec to ready; ms", ["starts", "median (least..most)"],
                           [[str(len(results["start"])), spread(results["start"], 1)]]))
    if results.get("instructions"):
        every.append(Table("instructions", "pawld's own instructions, by callgrind", ["of a", "instructions"],
                           [[what, f"{n:.0f}"] for what, n in results["instructions"].items()]))
    rows = []
    for t in results["targets"]:
        seen = "" if t["value"] is None else f"{t['value']:.2f}".rstrip("0").rstrip(".")
        rows.append([t["what"], t["target"], seen, t["verdict"]])
    every.append(Table("targets", "What holds", ["", "wanted", "seen", ""], rows))
    return every


def machine_lines(results):
    m = results["machine"]
    return [f"{m['pawld']} beside {m['redis']}" + "".join(f", {version}" for version in m["rivals"].values()),
            f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}; pawld to Redis over {results['redis_link']}",
            f"{results['scale']['rounds']} rounds of {results['scale']['seconds']} s; load average before {m['load_before']}, after "
            f"{m['load_after']}"]


def show(results):
    print("\n".join(machine_lines(results)))
    for t in tables(results):
        print("\n" + t.text())
