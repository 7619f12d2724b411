#!/usr/bin/env python3
"""Alert rules and the dashboard ask for metrics that exist: check-monitoring.py [--self-test | FOLDER]

Every name in share/prometheus/alerts.yml and share/grafana/pawl.json that begins with pawl_ must be in daemon/metrics.h or metrics.c, and be used as what it
is: counters under rate or increase, gauges not, histograms by their buckets under histogram_quantile. Labels are those that pawld or Prometheus gives.
Every alert has its row in docs/operations.md. Where promtool is there (Debian: prometheus), it checks and tests the rules, and parses each query of the
dashboard. Without an argument: first the self-test, in which the files are spoilt in one place after the other and each must be found.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import spoiling

RULES, RULE_TESTS, DASHBOARD = "share/prometheus/alerts.yml", "share/prometheus/alerts.test.yml", "share/grafana/pawl.json"
FILES = ["daemon/metrics.h", "daemon/metrics.c", "daemon/router.c", "docs/operations.md", RULES, RULE_TESTS, DASHBOARD]
LABELS = {"job", "instance", "le", "call", "code", "version"}
FOREIGN = {"up"}


def metrics_of(top):
    header = spoiling.read(top, "daemon/metrics.h")
    found = {name: kind for kind, name in re.findall(r'^ *X\(\w+, +(counter|gauge), +"(\w+)",', header, re.M)}
    found.update((name, "histogram") for name in re.findall(r'^ *X\(\w+, +"(\w+)", +"', header, re.M))
    found.update(re.findall(r'render_head\(out, "(\w+)", "(\w+)"', spoiling.read(top, "daemon/metrics.c")))
    return found


def alerts_of(text):
    """(name, expression): the part of YAML that the file is written in."""
    found, name, lines = [], None, text.split("\n")
    for i, line in enumerate(lines):
        match = re.match(r" +- alert: (\w+)$", line)
        name = match.group(1) if match else name
        match = re.match(r"( +)expr: (.*)$", line)
        if match:
            expression = match.group(2)
            if expression == ">-":
                deeper = []
                for follower in lines[i + 1:]:
                    if len(follower) - len(follower.lstrip()) <= len(match.group(1)):
                        break
                    deeper.append(follower.strip())
                expression = " ".join(deeper)
            found.append((name, expression))
    return found


def dashboard_queries(text):
    """(where, expression) of every target, annotation and variable."""
    value, found = json.loads(text), []
    for panel in value["panels"]:
        found += [(f"panel '{panel['title']}'", target["expr"]) for target in panel.get("targets", [])]
    found += [(f"annotation '{a['name']}'", a["expr"]) for a in value["annotations"]["list"] if "expr" in a]
    return found


def variables(text):
    return [(f"variable '{v['name']}'", v["query"]["query"]) for v in json.loads(text)["templating"]["list"] if v["type"] == "query"]


def problems_of(expression, metrics, calls):
    bare = re.sub(r'"[^"]*"', '""', expression)
    for name in sorted(set(re.findall(r"\bpawl_\w+", bare))):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if name in metrics:
            kind = metrics[name]
        elif metrics.get(base) == "histogram":
            kind = "part"
        else:
            yield f"there is no metric {name}"
            continue
        uses = len(re.findall(rf"\b{name}\b", bare))
        under = len(re.findall(rf"\b(?:rate|increase|changes)\({name}\b(?:{{[^}}]*}})?\[", bare))
        if kind == "counter" and under != uses:
            yield f"{name} is a counter, and not under rate or increase"
        if kind == "gauge" and re.search(rf"\b(?:rate|increase)\({name}\b", bare):
            yield f"{name} is a gauge under rate"
        if kind == "histogram":
            yield f"{name} is a histogram: its _bucket, _sum or _count"
        if kind == "part" and (under != uses or (name.endswith("_bucket") and "histogram_quantile(" not in bare)):
            yield f"{name} is not under rate and histogram_quantile"
    for name in re.findall(r"(?<![\w:$])([a-zA-Z_]\w*)(?=[{\[])", bare):
        if not name.startswith("pawl_") and name not in FOREIGN:
            yield f"{name} is no metric of pawl"
    labels = set(re.findall(r"[{,] ?(\w+) ?(?:=|!=|=~|!~)", bare)) | {
        label.strip() for group in re.findall(r"\b(?:by|without) ?\(([^)]*)\)", bare) for label in group.split(",")}
    for label in sorted(labels - LABELS):
        yield f"there is no label {label}"
    for call in re.findall(r'call="(\w+)"', expression):
        if call not in calls:
            yield f"there is no call {call}"


def promtool(top, queries):
    """(checks done, problems)"""
    problems = []

    def run(*args):
        done = subprocess.run(["promtool", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=top)
        if done.returncode != 0:
            problems.append(f"promtool {' '.join(args)}:\n{done.stdout.strip()}")

    run("check", "rules", RULES)
    run("test", "rules", RULE_TESTS)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dashboard.json")  # JSON is YAML
        rules = [{"record": f"dashboard:query:{i}", "expr": re.sub(r"\$__\w+", "5m", re.sub(r"\$(job|instance)", ".*", expression))}
                 for i, (_, expression) in enumerate(queries)]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        run("check", "rules", "--lint=none", path)
    return 3, problems


def check(top, with_promtool=True):
    """(checks that passed, problems)"""
    metrics = metrics_of(top)
    calls = set(re.findall(r'^ *\{"(\w+)", HTTP_', spoiling.read(top, "daemon/router.c"), re.M)) | {"none"}
    alerts, dashboard = alerts_of(spoiling.read(top, RULES)), spoiling.read(top, DASHBOARD)
    queries = dashboard_queries(dashboard)
    problems, done = [], 0
    if len(metrics) < 20 or len(alerts) < 10 or len(queries) < 20 or len(calls) < 10:
        problems.append(f"a file can't be read any more: {len(metrics)} metrics, {len(alerts)} alerts, {len(queries)} queries, {len(calls)} calls")
    for where, expression in [(f"{RULES}: {name}", e) for name, e in alerts] + [
            (f"{DASHBOARD}: {where}", e) for where, e in queries + variables(dashboard)]:
        done += 1
        problems += [f"{where}: {problem}" for problem in problems_of(expression, metrics, calls)]
    asked = " ".join(e for _, e in alerts + queries)
    for name, kind in metrics.items():
        if not re.search(rf"\b{name}{'_bucket' if kind == 'histogram' else ''}\b", asked):
            problems.append(f"{DASHBOARD}: nothing shows {name}")
    rows = re.findall(r"^\| `(Pawl\w+)` \|", spoiling.read(top, "docs/operations.md"), re.M)
    for name in sorted({name for name, _ in alerts} ^ set(rows)):
        problems.append(f"docs/operations.md and {RULES}: {name} is in one of them only")
    if with_promtool:
        more, found = promtool(top, queries)
        done, problems = done + more, problems + found
    return done, problems


SPOILT = [
    (RULES, "pawl_store_attached == 0", "pawl_redis_attached == 0", "there is no metric pawl_redis_attached"),
    (RULES, "rate(pawl_unknown_outcomes_total[5m]) > 0", "pawl_unknown_outcomes_total > 0", "is a counter, and not under rate"),
    (RULES, "deriv(pawl_waiters[10m]) > 0", "rate(pawl_waiters[10m]) > 0", "pawl_waiters is a gauge under rate"),
    (RULES, "rate(pawl_handover_seconds_bucket[10m])", "rate(pawl_handover_seconds[10m])", "pawl_handover_seconds is a histogram"),
    (RULES, "sum by (instance, le)", "sum by (node, le)", "there is no label node"),
    (RULES, "alert: PawlDown", "alert: PawlAway", "PawlAway is in one of them only"),
    ("docs/operations.md", "| `PawlDown` |", "| `PawlGone` |", "PawlDown is in one of them only"),
    (DASHBOARD, "pawl_leases_gone_total", "pawl_leases_went_total", "there is no metric pawl_leases_went_total"),
    (DASHBOARD, "sum by (call)", "sum by (lock)", "there is no label lock"),
    (DASHBOARD, "label_values(pawl_build_info, job)", "label_values(pawl_info, job)", "there is no metric pawl_info"),
    ("daemon/metrics.h", '"pawl_waiters"', '"pawl_waiting"', "there is no metric pawl_waiters"),
    ("daemon/metrics.h", 'counter,  "pawl_breaks_total"', 'gauge,    "pawl_breaks_total"', "pawl_breaks_total is a gauge under rate"),
]


def self_test(top):
    return spoiling.self_test("check-monitoring", SPOILT, lambda copy: spoiling.copy_files(top, copy, FILES), lambda copy: check(copy, with_promtool=False)[1])


def check_tree(top):
    there = shutil.which("promtool") is not None
    done, problems = check(top, with_promtool=there)
    if not there:
        print("check-monitoring: promtool is missing (Debian: apt-get install prometheus), so the rules were read but not tried")
    return spoiling.tell("check-monitoring", problems, count=done, skipped=0 if there else 3)


if __name__ == "__main__":
    sys.exit(spoiling.main(sys.argv[1:], self_test, check_tree))
