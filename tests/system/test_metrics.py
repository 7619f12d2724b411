"""What Prometheus reads: proper text, with every metric that is declared, and nothing that grows with the locks."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pawltest.events import EventStream
from pawltest.http import Conn
from pawltest.wait import until
from pawltest.waiters import LONG_TTL

HEADER = Path(__file__).resolve().parents[2] / "daemon" / "metrics.h"


def text_of(address):
    with Conn(address) as conn:
        reply = conn.request("GET", "/metrics")
    assert reply.status == 200 and reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return reply.body.decode("utf-8")


def traffic(api, name):
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    assert api.acquire(name)[0] == 409
    api.must("release", name, lease_id=grant["lease_id"])
    assert api.call("GET", "/nowhere")[0] == 404


def test_promtool_has_nothing_to_say(pawld, api, name):
    """Broken: Prometheus refuses the text, or its linter finds names and types that mislead."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (Debian: apt-get install prometheus)")
    traffic(api, name)
    done = subprocess.run(["promtool", "check", "metrics"], input=text_of(pawld.address), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_metric_that_is_declared_is_there(pawld, api, name):
    """Broken: a metric is declared, documented and watched for, and never published."""
    traffic(api, name)
    text = text_of(pawld.address)
    header = HEADER.read_text(encoding="utf-8")
    declared = re.findall(r'^ *X\(\w+, +(counter|gauge), +"(\w+)", +"([^"]+)"', header, re.M)
    declared += [("histogram", *row) for row in re.findall(r'^ *X\(\w+, +"(\w+)", +"([^"]+)"', header, re.M)]
    assert len(declared) > 30
    for kind, metric, meaning in declared:
        assert f"# HELP {metric} {meaning}\n# TYPE {metric} {kind}\n" in text, metric
    assert sorted(re.findall(r"^# TYPE (\w+)", text, re.M)) == sorted([row[1] for row in declared] + ["pawl_build_info", "pawl_requests_total"])


def test_p9_no_metric_grows_with_the_locks(pawld, api, name):
    """Broken: each name ever used leaves a sample behind. (P9)"""

    def names():
        return {line.rpartition(" ")[0] for line in text_of(pawld.address).splitlines() if not line.startswith("#")}

    traffic(api, name)
    before = names()
    for i in range(50):
        traffic(api, f"{name}/{i}")
    assert names() - before <= {'pawl_requests_total{call="metrics",code="200"}'}, "but that they are read"
    assert name not in text_of(pawld.address)


def test_state_as_numbers(world, redis):
    """Broken: an alert on a Redis that is away, or on a recovery that does not end, never fires."""
    pawld = world.pawld(redis, ["--recovery-window", "3s"])
    api = pawld.api()

    def state():
        samples = api.metrics()
        return samples["pawl_store_attached"], samples["pawl_recovering"], samples["pawl_ready"]

    assert state() == (1, 0, 1)
    redis.kill9()
    until(lambda: state() == (0, 0, 0), what="it is away")
    redis.start()
    until(lambda: state() == (1, 1, 0), what="it recovers")
    until(lambda: state() == (1, 0, 1), what="it is ready")


def test_expired_leases_and_streams_are_counted(pawld, api, name):
    """Broken: leases that nobody releases, or watchers, are not seen in the numbers."""
    api.must("acquire", name, ttl_ms=20)
    until(lambda: api.metrics()["pawl_expired_total"] == 1, what="it is counted")
    with EventStream(pawld.address):
        until(lambda: api.metrics()["pawl_event_streams"] == 1, what="it is counted")
    until(lambda: api.metrics()["pawl_event_streams"] == 0, what="it has gone")
