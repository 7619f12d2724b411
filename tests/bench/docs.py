"""docs/benchmarks.md, its data and its plots.

The page is written by hand but for what stands between two lines `<!-- KEY -->` and `<!-- end -->`: there the table of that key (show.py) is
put, or the machine's description. So the words stay with the figures they speak of, and one run renews all figures at once. Plots are by
matplotlib.
"""

import json
import os
import re
from statistics import median

from measure import tell
from servers import BenchError
from show import machine_lines, tables

PAGE, DATA = "benchmarks.md", "benchmarks.json"
BLOCK = re.compile(r"^<!-- (?P<key>[a-z]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def fill(page, blocks):
    """The page with its blocks renewed; a block that nothing was measured for, and one that the page lacks, is a fault."""
    seen = set()

    def renew(match):
        key = match["key"]
        if key not in blocks:
            raise BenchError(f"{PAGE} wants '{key}', which was not measured: run all parts, with all rivals")
        seen.add(key)
        return f"<!-- {key} -->\n{blocks[key]}\n<!-- end -->"
    page = BLOCK.sub(renew, page)
    if seen != set(blocks):
        raise BenchError(f"{PAGE} has no place for {', '.join(sorted(set(blocks) - seen))}")
    return page


def write_docs(results, folder):
    blocks = {t.key: f"{t.title}:\n\n{t.markdown()}" for t in tables(results)}
    blocks["machine"] = "\n".join(f"    {line}" for line in machine_lines(results))
    path = os.path.join(folder, PAGE)
    with open(path, encoding="utf-8") as f:
        page = fill(f.read(), blocks)
    plot_cycles(results, os.path.join(folder, "benchmarks-cycles.svg"))
    plot_handover(results, os.path.join(folder, "benchmarks-handover.svg"))
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)
    write_json(results, os.path.join(folder, DATA))
    tell(f"{path}, {DATA} and two plots are written")


def write_json(results, path):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(results, f, separators=(",", ":"))
        f.write("\n")


# ---------------------------------------------------------------- plots

COLOURS = {"pawl tcp": "#0b6e4f", "pawl unix": "#62b58f", "direct tcp": "#c0392b", "direct unix": "#e8a49c", "etcd tcp": "#2c5f9e",
           "etcd-memory tcp": "#9dbbe0", "kazoo tcp": "#8a6d3b", "pawl": "#0b6e4f", "etcd": "#2c5f9e", "etcd-memory": "#9dbbe0",
           "poll": "#c0392b", "kazoo": "#8a6d3b"}


def new_plot(title, x, y):
    import matplotlib  # wanted here alone: a run without --write-docs needs none
    matplotlib.use("svg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pawl", "font.size": 10, "font.family": "sans-serif",
                            "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_yscale("log")
    axes.grid(True, which="major", axis="y", color="#dddddd")
    return figure, axes


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip() for line in f]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def plot_cycles(results, path):
    from show import SIDES
    figure, axes = new_plot("Lock cycles per second (median, least and most of the rounds)", "connections", "cycles/s")
    places = list(range(len(results["cycles"])))
    for side in (s for s in COLOURS if any(s in e["rounds"][0] for e in results["cycles"])):
        points = [(x, [r[side]["rate"] for r in e["rounds"]]) for x, e in zip(places, results["cycles"]) if side in e["rounds"][0]]
        middles = [median(rates) for _, rates in points]
        axes.errorbar([x for x, _ in points], middles,
                      yerr=[[m - min(v) for m, (_, v) in zip(middles, points)], [max(v) - m for m, (_, v) in zip(middles, points)]],
                      label=SIDES[side], color=COLOURS[side], marker="o", markersize=4, capsize=3, linewidth=1.5)
    axes.set_xticks(places, [str(e["connections"]) for e in results["cycles"]])
    axes.legend(frameon=False, fontsize=9, ncol=4, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    save(figure, path)


def plot_handover(results, path):
    from show import SIDES
    figure, axes = new_plot("From release to grant (bar: median; line: to the 99th percentile)", "waiters", "us")
    sides = [s for s in ("pawl", "etcd", "etcd-memory", "poll", "kazoo") if s in results["handover"][0]["rounds"][0]]
    width = 0.8 / len(sides)
    for number, side in enumerate(sides):
        at = [x + (number - (len(sides) - 1) / 2) * width for x in range(len(results["handover"]))]
        low = [median(r[side]["handover_us"]["p50"] for r in e["rounds"]) for e in results["handover"]]
        high = [median(r[side]["handover_us"]["p99"] for r in e["rounds"]) for e in results["handover"]]
        axes.bar(at, low, width * 0.9, label=SIDES[side], color=COLOURS[side])
        axes.vlines(at, low, high, color="#444444", linewidth=1)
    axes.set_ylim(bottom=10)
    axes.set_xticks(range(len(results["handover"])), [str(e["waiters"]) for e in results["handover"]])
    axes.legend(frameon=False, fontsize=9, ncol=4, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    save(figure, path)
