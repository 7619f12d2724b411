"""What Prometheus reads: proper text, with every metric that is declared, and nothing that grows with the locks."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pawltest.events import EventStream
from pawltest.http import Conn, lock_path, parse_metrics
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


def test_p2_each_new_life_of_the_data_and_each_raise_of_the_fence_is_counted(pawld, api, redis):
    """Broken: a Redis that lost its data, or a fence that had to be raised, is not seen in the numbers; or each reconnect looks like that."""

    def lives():
        samples = api.metrics()
        return [samples[f"pawl_{what}_total"] for what in ("store_attaches", "store_openings", "fence_raises")]

    assert lives() == [1, 1, 1], "a fresh Redis: its first life begins with a fence"
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    until(lambda: lives()[0] == 2, what="attached again")
    assert lives() == [2, 1, 1], "the same data"
    redis.command("FLUSHALL")
    until(lambda: lives() == [3, 2, 2], what="attached to another life")


def test_what_is_refused_is_counted(world, redis):
    """Broken: a node that turns clients away, or a Redis that refuses, looks healthy in the numbers."""
    pawld = world.pawld(redis, ["--max-connections", "5"])
    with pawld.conn() as conn:

        def samples():
            return parse_metrics(conn.request("GET", "/metrics").body.decode("utf-8"))

        before = samples()
        with pawld.conn() as other:
            other.send("GET / HTTP/1.1\r\n\r\n")
            assert other.read_reply().status == 400
        refused = 0
        while not refused:
            reply = pawld.conn().request("GET", "/healthz")
            assert reply.status in (200, 429)
            refused += reply.status == 429
        redis.command("CONFIG", "SET", "maxmemory", 1)
        assert conn.request("POST", "/v1/locks/l/acquire").status == 503
        redis.command("CONFIG", "SET", "maxmemory", 0)
        after = samples()
    more = {metric: after[f"pawl_{metric}_total"] - before[f"pawl_{metric}_total"]
            for metric in ("http_refused_requests", "connections_refused", "store_errors", "grants")}
    assert more == {"http_refused_requests": 1, "connections_refused": 1, "store_errors": 1, "grants": 0}


def test_waits_are_timed(pawld, api, name):
    """Broken: how long clients wait is not seen in the numbers, or who didn't wait is among them."""
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    with Conn(pawld.address) as conn:
        conn.send_request("POST", f"/v1/locks/{name}/acquire?wait=60s")
        until(lambda: api.metrics()["pawl_waiters"] == 1, what="it waits")
        api.must("release", name, lease_id=grant["lease_id"])
        waited = conn.read_reply().json()["waited_ms"]
    samples = api.metrics()
    assert samples["pawl_wait_seconds_count"] == 1
    assert samples["pawl_wait_seconds_sum"] * 1000 >= waited - 1


class HandOverFirst:
    """For Proxy: the answer to a hand-over passes alone, and what is behind it half a second later, with the answer to the next beat."""

    ANSWER = re.compile(rb"\*5\r\n\$8\r\nreleased\r\n:\d+\r\n\$\d+\r\n\d+\r\n\$0\r\n\r\n:\d+\r\n")

    def __init__(self):
        self.kept, self.was_behind = b"", False

    def __call__(self, data):
        data, self.kept = self.kept + data, b""
        answer = self.ANSWER.search(data)
        if answer is None:
            return data
        self.kept = data[answer.end():]
        self.was_behind = self.was_behind or bool(self.kept)
        return data[:answer.end()]


def hand_over_with_a_call_behind(world, redis):
    """How many answers a new pawld was awake for, and for how many in vain; and whether something was behind."""
    answers = HandOverFirst()
    proxy = world.proxy((redis.host, redis.port), rewrite=answers)
    pawld = world.pawld(proxy.redis_url, ["--busy-poll", "1000"])
    api = pawld.api()
    other = api.must("acquire", "other", ttl_ms=LONG_TTL)
    lease = api.must("acquire", "lock", ttl_ms=LONG_TTL)
    for _ in range(30):
        api.cycle_s("warm")  # the way to Redis is known by the quickest answer
    with pawld.conn() as waiter, pawld.conn() as one, pawld.conn() as two:
        waiter.send_request("POST", lock_path("lock", "acquire"), {"ttl_ms": LONG_TTL, "wait_ms": 30000})
        until(lambda: api.metrics()["pawl_waiters"] == 1, what="it waits")
        for conn in (one, two):
            assert conn.request("GET", "/healthz").status == 200
        pawld.sigstop()  # so that both leave in one write
        one.send_request("POST", lock_path("lock", "release"), {"lease_id": lease["lease_id"]})
        two.send_request("POST", lock_path("other", "renew"), {"lease_id": other["lease_id"], "ttl_ms": LONG_TTL})
        pawld.sigcont()
        granted = waiter.read_reply().json()
        assert one.read_reply().status == 200 and two.read_reply().status == 200
    samples = api.metrics()
    api.must("release", "lock", lease_id=granted["lease_id"])
    api.must("release", "other", lease_id=other["lease_id"])
    pawld.stop()
    return samples["pawl_store_busy_polls_total"], samples["pawl_store_vain_busy_polls_total"], answers.was_behind


@pytest.mark.deadline(240)
def test_the_loop_is_awake_for_a_hand_over_and_not_for_what_is_behind_it(world, redis):
    """Broken: calls that are on their way beside a hand-over keep the loop awake, and its answer, though it was in time, counts as one that was waited for in
    vain; so on a node that has other work too --busy-poll is hardly ever tried. A busy machine may miss the moment, but not each time."""
    until(lambda: hand_over_with_a_call_behind(world, redis) == (1, 0, True), 90, "an answer in time")
