"""The results as tables for people."""

from statistics import median

from targets import Figures, rate, redis_cpu


def table(title, heads, rows):
    print(f"\n{title}")
    widths = [max(len(r[i]) for r in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print(("  " + "  ".join(cells)).rstrip())


def spread(values, digits=2):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def mid(runs, *keys, digits=0):
    """The median over runs of a figure that lies at these keys."""
    values = []
    for value in runs:
        for key in keys:
            value = value[key]
        values.append(value)
    return f"{median(values):.{digits}f}"


def show_cycles(results):
    figures = Figures(results)
    speed, cpu = [], []
    for entry in results["cycles"]:
        n = entry["connections"]
        for transport in ("tcp", "unix"):
            direct = [r[f"direct {transport}"] for r in entry["rounds"]]
            pawl = [r[f"pawl {transport}"] for r in entry["rounds"]]
            sides = (f"pawl {transport}", f"direct {transport}")
            speed.append([f"{transport} {n}", spread([rate(r) for r in direct], 0), spread([rate(r) for r in pawl], 0),
                          spread(figures.ratios(n, *sides, rate)), f"{figures.ratio(n, sides[0], 'direct tcp', rate):.2f}",
                          mid(direct, "cycle_us", "p50"), mid(direct, "cycle_us", "p99"),
                          mid(pawl, "cycle_us", "p50"), mid(pawl, "cycle_us", "p99")])
            cpu.append([f"{transport} {n}", mid(direct, "redis_cpu_us_per_cycle", digits=1), mid(pawl, "redis_cpu_us_per_cycle", digits=1),
                        spread(figures.ratios(n, *sides, redis_cpu)), mid(pawl, "pawld_cpu_us_per_cycle", digits=1),
                        mid(direct, "load_cpu_us_per_cycle", digits=1), mid(pawl, "load_cpu_us_per_cycle", digits=1)])
    table("Lock cycles (acquire, release) by transport and connections: median (least..most) of the rounds; times in us",
          ["", "direct /s", "pawl /s", "ratio", "of direct tcp", "direct p50", "p99", "pawl p50", "p99"], speed)
    table("CPU in us per cycle", ["", "Redis, direct", "Redis, pawl", "ratio", "pawld", "load, direct", "load, pawl"], cpu)
    table("Redis commands per cycle", ["", "scripts called", "all, those inside scripts too"],
          [[side, f"{c['scripts']:.2f}", f"{c['all']:.2f}"] for side, c in results["commands"].items()])


def grown(label, before, after):
    return [label, str(before), str(after), f"{after - before:+d}"]


def show_memory(results):
    rows = []
    if "names" in results:
        n = results["names"]
        rows += [[f"{n['cycles']} cycles on distinct names: keys in Redis", str(n["dbsize_before"]), str(n["dbsize_after"]),
                  f"{len(n['keys_left'])} left"],
                 grown("  pawld's memory, KiB", n["pawld_rss_kib_before"], n["pawld_rss_kib_after"]),
                 grown("  Redis' memory, KiB", n["redis_used_bytes_before"] // 1024, n["redis_used_bytes_after"] // 1024)]
    for part in ("idle", "parked"):
        if part in results:
            m = results[part]
            rows.append([f"{m['connections']} {part} connections: pawld's memory, KiB", str(m["rss_kib_before"]), str(m["rss_kib_during"]),
                         f"{m['bytes_each']:.0f} B each"])
    if rows:
        table("What stays and what it weighs", ["", "before", "after", ""], rows)


def show_handover(results):
    rows = []
    for entry in results["handover"]:
        rounds = entry["rounds"]
        trip = [r["publish"]["trip_us"]["p50"] for r in rounds]
        p50 = [r["handover"]["handover_us"]["p50"] for r in rounds]
        p99 = [r["handover"]["handover_us"]["p99"] for r in rounds]
        rows.append([str(entry["waiters"]), spread(trip, 0), spread(p50, 0), spread(p99, 0), spread([a / b for a, b in zip(p50, trip)]),
                     spread([a / b for a, b in zip(p99, trip)]), spread([r["scripts_per_handover"] for r in rounds])])
    table("Hand-over by waiters, from release sent to grant received; us",
          ["", "PUBLISH trip p50", "hand-over p50", "p99", "p50 / trip", "p99 / trip", "scripts each"], rows)


def show(results):
    m = results["machine"]
    print(f"{m['pawld']} beside {m['redis']}")
    print(f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}; pawld to Redis over {results['redis_link']}")
    if "cycles" in results:
        show_cycles(results)
    show_memory(results)
    if "handover" in results:
        show_handover(results)
    rows = []
    for t in results["targets"]:
        seen = "" if t["value"] is None else f"{t['value']:.2f}".rstrip("0").rstrip(".")
        rows.append([f"{t['part']}: {t['what']}", t["target"], seen, t["verdict"]])
    table("Targets", ["", "wanted", "seen", ""], rows)
