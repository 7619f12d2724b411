"""Redis misbehaves: dies, freezes, loses, refuses, is somebody else's. What its clients see stays true, and pawld comes back by itself.

In each test: what is told while Redis is away (503 `store_unavailable`, in time), what is not done meanwhile, and that nothing but Redis
coming back is needed afterwards.
"""

import json
import os
import random
import threading
import time
import uuid
from datetime import datetime

import pytest

from pawltest.fixtures import LONG
from pawltest.http import Api, Closed, Conn, lock_path, request_bytes
from pawltest.pawld import FRUGAL, run
from pawltest.process import free_port
from pawltest.redis import RespError
from pawltest.residue import lock_keys_without_end, residue, until_clean
from pawltest.wait import always, until

LONG_TTL = 600_000
FAST = ["--store-timeout", "500ms"]


def new_id():
    return str(uuid.uuid4())


def works_again(pawld, deadline_s=30.0):
    """The service is back without a restart: a lock can be taken and given up."""
    api = pawld.api()

    def cycle():
        status, grant = api.acquire("works-again")
        return status == 200 and api.release("works-again", lease_id=grant["lease_id"])[0] == 200

    until(cycle, deadline_s, "pawld works again")
    pawld.wait_ready()
    return True


def unavailable(api, name=None, deadline_s=10.0):
    """Each call is answered 503 store_unavailable, in time."""
    name = name or "unavailable-" + new_id()[:8]
    lease = new_id()
    calls = [
        lambda: api.acquire(name, lease_id=lease), lambda: api.renew(name, lease_id=lease), lambda: api.release(name, lease_id=lease),
        lambda: api.check(name, token=5), lambda: api.brk(name, reason="test"), lambda: api.inspect(name), lambda: api.list(),
    ]
    for i, call in enumerate(calls):
        start = time.monotonic()
        status, error = call()
        assert (status, error["error"]) == (503, "store_unavailable"), (i, error)
        assert time.monotonic() - start < deadline_s
        if i == 0:
            assert error["lease_id"] == lease
        assert "127.0.0.1" not in error["message"] and "{0}" not in error["message"], f"the store's own words leak: {error}"
    return True


def a_line_a_second(lines):
    """As many lines as there were, none within a second of the one before."""
    times = [datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp() for line in lines]
    assert all(later - earlier > 0.95 for earlier, later in zip(times, times[1:])), lines
    return len(lines)


def says(pawld, word):
    """The node tells whoever asks what Redis refuses, in words of its own."""
    until(lambda: word in pawld.api().status()[1]["redis"]["problem"], what=f"the status says {word}")


def until_unavailable(pawld):
    api = pawld.api()
    until(lambda: api.acquire("probe", ttl_ms=500)[0] == 503, what="acquire answers 503")  # a shorter one may come too late to be told: 503 as well
    return api


# ---------------------------------------------------------------- C09: never a lock without an end


def test_c09_no_lock_key_is_ever_without_a_ttl(world):
    """Broken: create and expire are two steps; a kill, a pause or a refusal between them leaves a lock for ever. (C09)"""
    redis = world.redis(options={"maxmemory-policy": "noeviction"})
    pawld = world.pawld(redis, FAST)
    stop, problems = threading.Event(), []
    address = {"now": pawld.address}

    def client(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                with Conn(address["now"], timeout_s=20) as conn:
                    for _ in range(50):
                        conn.send_request("POST", lock_path(f"c09/{rng.randrange(5000)}", "acquire"), {"ttl_ms": rng.choice((1, 50, 2000))})
                        reply = conn.read_reply()
                        if reply.status not in (200, 409, 503):
                            problems.append(repr(reply))
            except (OSError, Closed, AssertionError):
                time.sleep(0.02)  # pawld was killed under it

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    rng = random.Random(9)
    try:
        for round_ in range(8 if not LONG else 60):
            fault = ("kill", "pause", "memory")[round_ % 3]
            until(lambda: redis.command("DBSIZE") > 20, what="locks are being taken")
            if fault == "kill":
                pawld.kill9()
                pawld.start()
                address["now"] = pawld.address
            elif fault == "pause":
                redis.command("CLIENT", "PAUSE", rng.randrange(50, 700), "ALL")
            else:
                redis.command("CONFIG", "SET", "maxmemory", 1)
                until(lambda: Api(address["now"]).acquire("x" + new_id())[0] == 503, what="memory limit is felt")
                redis.command("CONFIG", "SET", "maxmemory", 0)
            assert lock_keys_without_end(redis) == []
            until(lambda: pawld.ready(), what="ready for the next round")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert lock_keys_without_end(redis) == []
    until(lambda: redis.keys("pawl:{0}:lock:*") == set(), 60, "every lock ends by itself")


def test_c09_behind_an_acl_that_denies_expiry(world):
    """Broken: where EXPIRE is not allowed a lock is made that never ends. (C09)"""
    redis = world.redis()
    redis.command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-pexpire", "-expire", "-pexpireat", "-expireat")
    pawld = world.pawld(f"redis://weak:pw@127.0.0.1:{redis.port}/0", wait="listening")
    api = pawld.api()
    for i in range(20):
        status, _ = api.acquire(f"l{i}", ttl_ms=LONG_TTL)
        assert status in (200, 503)
    assert lock_keys_without_end(redis) == []


# ---------------------------------------------------------------- C10: many names


def test_c10_names_used_once_leave_nothing_and_tokens_rise(world, redis):
    """Broken: a counter per name stays for ever, or is dropped and starts again below. (C10 e)"""
    api = world.pawld(redis).api()
    before = redis.command("DBSIZE")
    last = 0
    for i in range(2000):
        grant = api.must("acquire", f"once/{i % 1000}")
        assert grant["token"] > last
        last = grant["token"]
        api.must("release", grant["name"], lease_id=grant["lease_id"])
    assert residue(redis) == [] and redis.command("DBSIZE") <= before + 1


# ---------------------------------------------------------------- C19, C20: not a master, not loaded


def test_c19_a_demoted_redis_grants_nothing(world, redis):
    """Broken: the connection stays up after a failover, every write fails with READONLY, and health stays green. (C19)"""
    pawld = world.pawld(redis, FAST)
    grant = pawld.api().must("acquire", "held", ttl_ms=LONG_TTL)
    redis.command("REPLICAOF", "127.0.0.1", free_port())
    pawld.wait_not_ready()
    api = until_unavailable(pawld)
    unavailable(api)
    says(pawld, "not a master")
    for verb, params in (("renew", {"lease_id": grant["lease_id"]}), ("release", {"lease_id": grant["lease_id"]})):
        assert getattr(api, verb)("held", **params)[0] == 503
    redis.command("REPLICAOF", "NO", "ONE")
    works_again(pawld)
    assert pawld.api().must("renew", "held", lease_id=grant["lease_id"])["token"] == grant["token"]


def test_c19_a_healthy_master_behind_the_same_address(world, redis):
    """Broken: pawld clings to the demoted server's connection although the address leads to a master again. (C19)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, FAST)
    before = pawld.api().must("acquire", "l", ttl_ms=1000)["token"]
    fresh = world.redis()
    redis.command("REPLICAOF", "127.0.0.1", free_port())
    proxy.target = fresh.address  # the old connections stay up
    until(lambda: fresh.command("EXISTS", "pawl:{0}:fence") == 1, what="pawld has moved to the new master")
    works_again(pawld)
    api = pawld.api()
    assert until(lambda: api.acquire("l")[1].get("token"), what="granted") > before


def test_c20_while_redis_loads_its_data(world):
    """Broken: connected, but LOADING: a crash, an endless reload of scripts, or a process that gives up. (C20)"""
    redis = world.redis(options={"key-load-delay": 200, "loading-process-events-interval-bytes": 1024})
    pawld = world.pawld(redis, FAST)
    redis.command("EVAL", "for i = 1, 20000 do redis.call('SET', 'filler:' .. i, string.rep('x', 64)) end", 0)
    redis.command("SAVE")
    redis.stop()
    redis.start(ready=False)
    api = pawld.api()
    saw_loading, saw = False, set()

    def loaded():
        nonlocal saw_loading
        try:
            info = redis.info("persistence")
        except (OSError, RespError):
            return False
        if info.get("loading") == "1":
            saw_loading = True
            start = time.monotonic()
            status, error = api.acquire("l")
            if status != 200:
                assert (status, error["error"]) == (503, "store_unavailable")
            assert time.monotonic() - start < 10
            saw.add(api.status()[1]["redis"]["problem"])
            return False
        return True

    until(loaded, 90, "redis has loaded")
    assert saw_loading, "the load was too quick to be seen"
    assert "Redis is loading its data" in saw, saw
    works_again(pawld)
    assert api.metrics()["pawl_ready"] == 1


# ---------------------------------------------------------------- C21, C22: memory


def test_c21_out_of_memory_without_eviction(world):
    """Broken: a script fails half way and leaves half a lock; or release does not work when it would help most. (C21)"""
    redis = world.redis(options={"maxmemory-policy": "noeviction"})
    pawld = world.pawld(redis, FAST)
    api = pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    other = api.must("acquire", "other", ttl_ms=LONG_TTL)
    redis.command("CONFIG", "SET", "maxmemory", 1)
    status, error = api.acquire("new", ttl_ms=LONG_TTL)
    assert (status, error["error"]) == (503, "store_unavailable") and "(OOM)" in error["message"], error
    assert not redis.holds("new")
    assert api.inspect("held")[1]["token"] == grant["token"]
    assert api.acquire("held")[0] in (409, 503)
    left = redis.pttl("held")
    status, renewed = api.renew("held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    assert status in (200, 503), renewed
    assert redis.pttl("held") > left - 60_000, "a renewal that failed must not shorten"
    assert api.release("other", lease_id=other["lease_id"])[0] == 200 and not redis.holds("other")
    assert lock_keys_without_end(redis) == []
    redis.command("CONFIG", "SET", "maxmemory", 0)
    works_again(pawld)
    assert pawld.api().must("renew", "held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    until(lambda: residue(redis) == ["pawl:{0}:lock:held"], what="only what is held is left")


def test_c21_what_redis_refuses_is_logged_once_a_second(world):
    """Broken: each call that a full Redis refuses is a line of the log, which fills the disk when it helps least; or none is. (C21, C27)"""
    redis = world.redis(options={"maxmemory-policy": "noeviction"})
    pawld = world.pawld(redis, FAST)
    api = pawld.api()
    redis.command("CONFIG", "SET", "maxmemory", 1)
    refused = []

    def told_again():
        assert api.acquire(f"l{len(refused)}")[0] == 503
        refused.append(1)
        return len(refused) > 100 and len(pawld.log("store_error")) >= 2

    until(told_again, what="a second line")
    lines = pawld.log("store_error")
    assert a_line_a_second(lines) >= 2 and "(OOM)" in lines[0]["problem"]
    assert lines[1]["suppressed"] > 0 and sum(line["suppressed"] for line in lines) + len(lines) <= len(refused)


def test_c22_a_redis_that_may_evict_is_refused(world):
    """Broken: a cache drops held locks, and pawl goes on as if it were a store. (C22)"""
    redis = world.redis(options={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"})
    pawld = world.pawld(redis, FAST, wait="listening")
    api = pawld.api()
    until(lambda: any(line["level"] in ("warn",
        "error") and ("evict" in json.dumps(line) or "allkeys-lru" in json.dumps(line)) for line in pawld.log()),
          what="the log says why")
    assert api.readyz() == 503 and api.acquire("l")[0] == 503 and api.healthz() == 200
    until(lambda: len(pawld.log("attach_refused")) > 1, what="it is told again")
    a_line_a_second(pawld.log("attach_refused"))
    redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    works_again(pawld)


def test_c22_with_allow_eviction_an_evicted_lock_is_lost_and_never_confirmed(world):
    """Broken: the lease that Redis threw away is renewed although another has the lock. (C22)"""
    redis = world.redis(options={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"})
    pawld = world.pawld(redis, ["--allow-eviction"])
    api = pawld.api()
    a = api.must("acquire", "l", ttl_ms=LONG_TTL)
    redis.command("DEL", redis.lock_key("l"))  # what an eviction does
    b = api.must("acquire", "l", ttl_ms=LONG_TTL)
    assert b["token"] > a["token"]
    for verb in ("renew", "release"):
        assert getattr(api, verb)("l", lease_id=a["lease_id"])[0] == 410
    assert api.check("l", token=a["token"])[0] == 410 and api.check("l", token=b["token"])[0] == 200


# ---------------------------------------------------------------- C23: no answer, no close


def freeze(world, how):
    """(pawld, redis, stop answering, answer again)"""
    redis = world.redis()
    if how == "sigstop":
        return world.pawld(redis, FAST), redis, redis.sigstop, redis.sigcont
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, FAST)

    def hole():
        proxy.hole = True

    def mend():
        proxy.hole = False

    def stall():
        proxy.stall_down = True

    def flow():
        proxy.stall_down = False

    return (pawld, redis, hole, mend) if how == "hole" else (pawld, redis, stall, flow)


@pytest.mark.parametrize("how", ["sigstop", "hole", "stalled_answers"])
def test_c23_redis_stops_answering(world, how):
    """Broken: requests hang on a frozen connection; late answers reach the wrong request; an acquire that was answered 503 holds its lock.
    (C23)"""
    pawld, redis, stop, go_on = freeze(world, how)
    api = pawld.api()
    kept = api.must("acquire", "kept", ttl_ms=LONG_TTL)
    stop()
    leases = {}
    for i in range(8):
        lease = new_id()
        start = time.monotonic()
        status, error = api.acquire(f"f/{i}", lease_id=lease, ttl_ms=LONG_TTL)
        assert (status, error["error"], error["lease_id"]) == (503, "store_unavailable", lease)
        assert time.monotonic() - start < 10
        leases[i] = lease
    unavailable(api)
    pawld.wait_not_ready()
    assert api.healthz() == 200 and api.status()[0] == 200
    go_on()
    works_again(pawld)
    for i in range(8):
        until(lambda i=i: not redis.holds(f"f/{i}"), what="an acquire that was answered 503 is undone")
    for i in range(50):
        grant = api.must("acquire", f"g/{i}", owner=f"o{i}")
        assert (grant["name"], grant["owner"]) == (f"g/{i}", f"o{i}")
    assert api.must("renew", "kept", lease_id=kept["lease_id"])["token"] == kept["token"]


def test_c23_a_retry_during_the_freeze_keeps_its_lease(world):
    """Broken: the undo of the call that timed out kills the lease that the retry was told it holds. (C23, P7)"""
    pawld, redis, stop, go_on = freeze(world, "stalled_answers")
    api = pawld.api()
    lease = new_id()
    stop()
    assert api.acquire("l", lease_id=lease, ttl_ms=LONG_TTL)[0] == 503
    go_on()
    status, grant = until(lambda: _settled(api.acquire("l", lease_id=lease, ttl_ms=LONG_TTL)), what="the retry is granted")
    assert status == 200, grant
    always(lambda: api.renew("l", lease_id=lease, ttl_ms=LONG_TTL)[0] == 200, 1.5, "the lease that the retry was told it holds")


def _settled(answer):
    return None if answer[0] == 503 else answer


def test_c23_memory_stays_flat_behind_a_frozen_redis(world):
    """Broken: what nobody answers piles up. (C23, P9)"""
    redis = world.redis()
    pawld = world.pawld(redis, ["--store-timeout", "300ms"])
    redis.sigstop()
    stop = threading.Event()
    counts = []

    def client():
        conn, done = Conn(pawld.address), 0
        while not stop.is_set():
            conn.send(request_bytes("POST", "/v1/locks/m/acquire") * 40)
            for _ in range(40):
                assert conn.read_reply().status == 503
                done += 1
        conn.close()
        counts.append(done)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(2)  # lets the heap reach its working size
        warm = pawld.rss()
        time.sleep(4 if not LONG else 60)  # the load itself is the test
        grown = pawld.rss() - warm
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        redis.sigcont()
    assert sum(counts) >= 100, counts
    # AddressSanitizer keeps up to 256 MiB of freed memory from being used again
    bound = (48 if os.environ.get("PAWL_SANITIZERS", "yes") == "no" else 320) * 1024 * 1024
    assert grown < bound, f"grew by {grown} bytes in 4 s"
    works_again(pawld)


# ---------------------------------------------------------------- C24: connections drop with commands in flight


class Crowd:
    """Clients that acquire, renew, release and hang up at random. Each request that is waited for must get exactly one well-formed
    answer."""

    def __init__(self, address, count):
        self.address, self.stop = address, threading.Event()
        self.problems, self.answers = [], 0
        self.threads = [threading.Thread(target=self._client, args=(i,)) for i in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _client(self, seed):
        rng = random.Random(seed)
        try:
            while not self.stop.is_set():
                self._session(rng)
        except BaseException as error:
            self.problems.append(f"client {seed}: {error!r}")

    def _session(self, rng):
        with Conn(self.address, timeout_s=30) as conn:
            for _ in range(rng.randrange(1, 12)):
                name = f"crowd/{rng.randrange(40)}"
                lease = new_id()
                if rng.random() < 0.15:
                    conn.send_request("POST", lock_path(name, "acquire"), {"ttl_ms": 3000})
                    if rng.random() < 0.5:
                        conn.reset()
                    return
                reply = conn.request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": 3000})
                body = reply.json()
                assert reply.status in (200, 409, 503) and body["lease_id"] == lease, reply
                self.answers += 1
                if reply.status != 200:
                    continue
                assert body["name"] == name
                for verb in ("renew", "release"):
                    reply = conn.request("POST", lock_path(name, verb), {"lease_id": lease})
                    assert reply.status in (200, 410, 503), reply
                    if reply.status == 200:
                        assert reply.json()["name"] == name, reply
                    self.answers += 1


@pytest.mark.deadline(900)
def test_c24_redis_drops_with_commands_in_flight(world):
    """Broken: memory that was freed is used when an answer comes for a client that left, or a context is freed in its own callback.
    (C24)"""
    redis = world.redis()
    proxy = world.proxy(redis.address)
    proxy.jitter_s = 0.01
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "300ms"])
    rng = random.Random(24)
    end = time.monotonic() + (300 if LONG else 20)
    faults = ["kill9", "restart", "client_kill", "cut", "slam", "freeze", "flush"]
    with Crowd(pawld.address, 200 if LONG else 24) as crowd:
        i = 0
        while time.monotonic() < end and not crowd.problems:
            fault = faults[i] if i < len(faults) else rng.choice(faults)
            i += 1
            if fault == "kill9":
                redis.kill9()
                redis.start()
            elif fault == "restart":
                redis.stop()
                redis.start()
            elif fault == "client_kill":
                redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            elif fault == "cut":
                proxy.cut()
            elif fault == "slam":  # closed while it connects
                proxy.slam = True
                proxy.cut()
                until(lambda start=proxy.connects: proxy.connects > start + 2, what="pawld tries again")
                proxy.slam = False
            elif fault == "freeze":
                redis.sigstop()
                time.sleep(0.5)
                redis.sigcont()
            else:
                redis.command("FLUSHALL")
            seen = crowd.answers
            until(lambda: crowd.answers > seen + 20 or crowd.problems, what="the crowd is served")
        pawld.address  # still the same process
    assert crowd.problems == []
    assert pawld.running()
    works_again(pawld)
    until(lambda: [k for k in residue(redis) if "crowd" in k] == [], what="all leases of the crowd have ended")


def test_client_kill_is_noticed_and_mended(world, redis):
    """Broken: after CLIENT KILL the next call fails, or pawld never reconnects."""
    pawld = world.pawld(redis)
    api = pawld.api()
    grant = api.must("acquire", "l", ttl_ms=LONG_TTL)
    for _ in range(5):
        for kind in ("normal", "pubsub"):
            redis.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        status, reply = until(lambda: _settled(api.renew("l", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)), what="renewed again")
        assert status == 200 and reply["token"] == grant["token"]
    works_again(pawld)


# ---------------------------------------------------------------- C25: scripts gone


def test_c25_the_script_cache_is_flushed_under_load(world, redis):
    """Broken: after SCRIPT FLUSH every call fails, or each retries for ever. (C25)"""
    proxy = world.proxy(redis.address, resp=True)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "10s"])
    stop, problems, done = threading.Event(), [], [0]

    def client(seed):
        api, i = Api(pawld.address), 0
        try:
            while not stop.is_set():
                i += 1
                name, lease = f"s/{seed}/{i}", new_id()
                first = api.must("acquire", name, lease_id=lease)
                assert api.must("renew", name, lease_id=lease)["token"] == first["token"]
                assert api.must("release", name, lease_id=lease)["token"] == first["token"]
                done[0] += 3
        except BaseException as error:
            problems.append(repr(error))
        finally:
            api.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    flushes = 0
    end = time.monotonic() + (30 if LONG else 5)
    while time.monotonic() < end and not problems:
        redis.command("SCRIPT", "FLUSH")
        flushes += 1
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert done[0] > 50
    # one try by hash and one by text at most for each call in flight at a flush; beats and attaches are few
    assert proxy.commands["EVAL"] <= (flushes + 2) * 40, proxy.commands
    assert proxy.commands["EVALSHA"] <= done[0] * 2 + 500, (proxy.commands, done)


def test_c25_flushed_while_requests_are_in_flight(world, redis):
    """Broken: those that were on their way when the cache was flushed fail, or lose their order. (C25)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "20s"])
    warm = pawld.api().must("acquire", "warm")
    pawld.api().must("release", "warm", lease_id=warm["lease_id"])
    proxy.stall_up = True
    conns = [pawld.conn() for _ in range(20)]
    for i, conn in enumerate(conns):
        conn.send_request("POST", lock_path("one" if i < 10 else f"own/{i}", "acquire"), {"owner": str(i)})
    until(lambda: pawld.api().metrics()["pawl_store_pending"] >= 20, what="all in flight")
    redis.command("SCRIPT", "FLUSH")
    proxy.stall_up = False
    replies = [conn.read_reply() for conn in conns]
    assert sorted(reply.status for reply in replies[:10]) == [200] + [409] * 9
    assert [reply.status for reply in replies[10:]] == [200] * 10


# ---------------------------------------------------------------- C26, C27: coming back


def test_c26_redis_away_and_back(world, redis):
    """Broken: after an outage the answer is 503 for ever, or a call made during it hangs. (C26)"""
    pawld = world.pawld(redis)
    api = pawld.api()
    for pause in (0.2, 3.0):
        redis.stop()
        pawld.wait_not_ready()
        until_unavailable(pawld)
        start = time.monotonic()
        unavailable(api)
        assert time.monotonic() - start < 8 * 3, "503 at once while down"
        time.sleep(pause)  # the length of the outage
        redis.start()
        back = time.monotonic()
        works_again(pawld)
        assert time.monotonic() - back < 15, "back within the cap of the back-off"


def with_hosts(hosts):
    """What a command has to begin with for the file `hosts` to be its /etc/hosts."""
    if os.system(f"unshare -m sh -c 'mount --bind {hosts} /etc/hosts' 2>/dev/null") != 0:
        pytest.skip("mount --bind is not permitted here")
    return ["unshare", "-m", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace of its own (root)")
def test_c26_the_name_of_redis_is_resolved_again(world):
    """Broken: the address that the name had at the start is kept for ever. (C26)"""
    port = free_port()
    old = world.redis(host="127.0.0.2", port=port)
    new = world.redis(host="127.0.0.3", port=port)
    hosts = os.path.join(world.folder(), "hosts")

    def point_to(address):
        with open(hosts, "r+" if os.path.exists(hosts) else "w", encoding="ascii") as f:  # in place: the mount holds the file, not its name
            f.write(f"127.0.0.1 localhost\n{address} redis.test\n")

    point_to("127.0.0.2")
    pawld = world.pawld(f"redis://redis.test:{port}/0", prefix=with_hosts(hosts))
    before = pawld.api().must("acquire", "l")["token"]
    point_to("127.0.0.3")
    old.stop()
    works_again(pawld)
    assert new.command("EXISTS", "pawl:{0}:fence") == 1
    assert until(lambda: pawld.api().acquire("l")[1].get("token"), what="granted") > before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace of its own (root)")
def test_c26_each_address_of_the_name_is_tried(world):
    """Broken: a name with several addresses is as good as its first one. (C26) The one that answers stands between two that refuse, so the order in which
    they are tried is all the same."""
    redis = world.redis(host="127.0.0.3")
    hosts = os.path.join(world.folder(), "hosts")
    with open(hosts, "w", encoding="ascii") as f:
        f.write("127.0.0.1 localhost\n" + "".join(f"127.0.0.{n} redis.test\n" for n in (2, 3, 4)))
    pawld = world.pawld(f"redis://redis.test:{redis.port}/0", prefix=with_hosts(hosts))
    assert pawld.api().must("acquire", "l")["token"] > 0
    assert pawld.log("store_link_down") == [], "an attempt was over before all addresses were tried"


def test_c27_connects_follow_a_capped_back_off(world, redis):
    """Broken: every failed call makes its own connection, or the loop spins, or the log fills. (C27)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "300ms"])
    fds = pawld.fds()
    proxy.slam = True
    proxy.cut()
    pawld.wait_not_ready()
    stop = threading.Event()
    answered = [0]

    def client():
        api = Api(pawld.address)
        while not stop.is_set():
            assert api.acquire("l")[0] == 503
            answered[0] += 1
        api.close()

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    start, connects, lines = time.monotonic(), proxy.connects, len(pawld.log())
    time.sleep(5 if not LONG else 60)  # the length of the outage
    took = time.monotonic() - start
    stop.set()
    for thread in threads:
        thread.join()
    made = proxy.connects - connects
    assert 1 <= made <= took * 12, f"{made} connects in {took:.1f} s"
    assert len(pawld.log()) - lines <= made * 3 + took * 5, "more than a few lines per attempt"
    for link in {line["link"] for line in pawld.log("store_link_down")}:
        a_line_a_second([line for line in pawld.log("store_link_down") if line["link"] == link])
    assert answered[0] > 20
    assert pawld.fds() <= fds + 10, "descriptors leak"
    # and without any load it hardly costs anything
    cpu, start = pawld.cpu_s(), time.monotonic()
    time.sleep(2)
    assert pawld.cpu_s() - cpu < 0.5 * (time.monotonic() - start)
    proxy.slam = False
    works_again(pawld)


def test_c27_redis_has_no_room_for_clients(world, redis):
    """Broken: "max number of clients reached" crashes pawld or makes it spin. (C27)"""
    redis.command("CONFIG", "SET", "maxclients", 1)
    pawld = world.pawld(redis, FAST, wait="listening")
    unavailable(pawld.api())
    assert pawld.api().readyz() == 503
    redis.command("CONFIG", "SET", "maxclients", 1000)
    works_again(pawld)
    redis.command("CONFIG", "SET", "maxclients", 1)
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    redis.command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
    pawld.wait_not_ready()
    unavailable(pawld.api())
    redis.command("CONFIG", "SET", "maxclients", 1000)
    works_again(pawld)


# ---------------------------------------------------------------- C37: memory per name


def pipeline(conn, requests, expect):
    """Sends all, reads all; returns the bodies. The answers come in order."""
    sender = threading.Thread(target=lambda: conn.send(b"".join(requests)))
    sender.start()
    bodies = []
    for _ in requests:
        reply = conn.read_reply()
        assert reply.status in expect, reply
        bodies.append(reply.json())
    sender.join()
    return bodies


@pytest.mark.deadline(1800)
def test_c37_memory_does_not_grow_with_names(world, redis):
    """Broken: something is kept for every name that was ever used, in the process or in Redis. (C37, P8)"""
    total = 200_000 if LONG else 20_000
    pawld = world.pawld(redis, env=FRUGAL)
    conn = pawld.conn()
    keys = redis.command("DBSIZE")

    def use(kind, start, count):
        for first in range(start, start + count, 200):
            names = [f"{kind}/{i}" for i in range(first, min(first + 200, start + count))]
            if kind == "freed":
                ids = [new_id() for _ in names]
                pipeline(conn, [request_bytes("POST", lock_path(n, "acquire"), {"lease_id": i}) for n, i in zip(names, ids)], {200})
                pipeline(conn, [request_bytes("POST", lock_path(n, "release"), {"lease_id": i}) for n, i in zip(names, ids)], {200})
            elif kind == "expired":
                pipeline(conn, [request_bytes("POST", lock_path(n, "acquire"), {"ttl_ms": 100}) for n in names], {200, 503})
            else:
                pipeline(conn, [request_bytes("GET", lock_path(n))for n in names], {200})

    for kind in ("freed", "expired", "looked-at"):
        use(kind, 0, 2000)
    until_clean(redis)
    warm = pawld.rss()
    for kind in ("freed", "expired", "looked-at"):
        use(kind, 2000, total if kind == "freed" else total // 2)
    until_clean(redis, 60)
    # the allocator of AddressSanitizer puts more around each block, and keeps some
    bound = (2 if os.environ.get("PAWL_SANITIZERS", "yes") == "no" else 6) * 1024 * 1024
    until(lambda: pawld.rss() - warm < bound, 30, "memory is back to what it was")
    assert redis.command("DBSIZE") <= keys + 1
    with Conn(pawld.address) as other:
        text = other.request("GET", "/metrics").body.decode()
    assert not any(kind in text for kind in ("freed/", "expired/", "looked-at/"))
    until(lambda: pawld.api().metrics()["pawl_leases"] == 0, 60, "the lease table is empty")


# ---------------------------------------------------------------- refusals of Redis


def test_acl_without_scripts(world):
    """Broken: NOPERM is a crash, a 500 with Redis' words, or a loop; a grant of the right does not help without a restart."""
    redis = world.redis()
    redis.command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha")
    pawld = world.pawld(f"redis://weak:pw@127.0.0.1:{redis.port}/0", FAST, wait="listening")
    unavailable(pawld.api())
    assert pawld.api().readyz() == 503
    says(pawld, "(NOPERM)")
    redis.command("ACL", "SETUSER", "weak", "+@all")
    works_again(pawld)


@pytest.mark.parametrize("denied", ["set", "incr", "del", "publish"])
def test_acl_without_one_command_of_a_script(world, denied):
    """Broken: a command that is refused inside a script leaves half of its work, or a grant that can't be."""
    redis = world.redis()
    redis.command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-" + denied)
    pawld = world.pawld(f"redis://weak:pw@127.0.0.1:{redis.port}/0", FAST, wait="listening")
    api = pawld.api()
    tokens = []
    for i in range(10):
        status, reply = api.acquire(f"l{i}", ttl_ms=LONG_TTL)
        assert status in (200, 503), reply
        if status == 200:
            tokens.append(reply["token"])
            assert redis.holds(f"l{i}")
            released = api.release(f"l{i}", lease_id=reply["lease_id"])[0]
            assert released in (200, 503) and (released == 503) == redis.holds(f"l{i}")
    assert tokens == sorted(set(tokens))
    assert lock_keys_without_end(redis) == []
    redis.command("ACL", "SETUSER", "weak", "+@all")
    works_again(pawld)


def test_keys_outside_of_an_acl(world):
    """Broken: a user that may not touch pawl's keys is a surprise at the first grant instead of not ready."""
    redis = world.redis()
    redis.command("ACL", "SETUSER", "other", "on", ">pw", "~other:*", "&*", "+@all")
    pawld = world.pawld(f"redis://other:pw@127.0.0.1:{redis.port}/0", FAST, wait="listening")
    unavailable(pawld.api())
    assert pawld.api().readyz() == 503
    says(pawld, "(NOPERM)")


@pytest.mark.parametrize("given", ["none", "wrong"])
def test_a_password_that_is_missing_or_wrong(world, given):
    """Broken: NOAUTH or WRONGPASS is a crash or a loop; or commands run although AUTH failed."""
    redis = world.redis(password="right-one")
    url = f"redis://{':wrong-one@' if given == 'wrong' else ''}127.0.0.1:{redis.port}/0"
    pawld = world.pawld(url, FAST, wait="listening")
    unavailable(pawld.api())
    assert pawld.api().readyz() == 503
    until(lambda: [line for line in pawld.log() if line["level"] in ("warn", "error")], what="the log says that it can't get in")
    asked = "asks for a password" if given == "none" else "WRONGPASS"
    until(lambda: any(asked in line["problem"] for line in pawld.log("store_link_down")), what="it says which of the two it is")
    assert "wrong-one" not in pawld.stderr()
    redis.command("CONFIG", "SET", "requirepass", "wrong-one" if given == "wrong" else "")
    redis.password = "wrong-one" if given == "wrong" else None
    works_again(pawld)


def test_a_database_of_its_own(world):
    """Broken: the /db of the URL is ignored, or forgotten with the first connection, and pawl writes into another's database."""
    redis = world.redis()
    pawld = world.pawld(f"redis://127.0.0.1:{redis.port}/5")
    api = pawld.api()
    api.must("acquire", "l", ttl_ms=LONG_TTL)
    for kind in ("normal", "pubsub"):
        redis.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    until(lambda: api.metrics()["pawl_store_attaches_total"] == 2, what="connected anew")
    api.must("acquire", "m", ttl_ms=LONG_TTL)
    assert redis.keys() == set()
    redis.command("SELECT", 5)
    assert redis.holds("l") and redis.holds("m")


def test_a_database_that_is_not_there(world):
    """Broken: SELECT is refused, and pawl goes on in the database where it happens to be."""
    redis = world.redis(options={"databases": 2})
    pawld = world.pawld(f"redis://127.0.0.1:{redis.port}/5", FAST, wait="listening")
    says(pawld, "SELECT refused")
    assert pawld.api().readyz() == 503 and pawld.api().acquire("l")[0] == 503
    assert redis.keys() == set()


def test_redis_over_a_unix_socket(world):
    """Broken: a refused unix socket, which calls nothing back, is never tried again."""
    redis = world.redis(unix=True)
    pawld = world.pawld(redis)
    before = pawld.api().must("acquire", "l")["token"]
    for _ in range(2):
        redis.kill9()
        pawld.wait_not_ready()
        redis.start()
        works_again(pawld)
    assert pawld.api().must("acquire", "l2")["token"] > before


def test_misconf_after_a_failed_snapshot(world):
    """Broken: "stop-writes-on-bgsave-error" is a 500, a crash, or a grant. Comes back by itself."""
    redis = world.redis(options={"stop-writes-on-bgsave-error": "yes", "enable-protected-configs": "yes"})
    pawld = world.pawld(redis, FAST)
    api = pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    gone = os.path.join(redis.folder, "gone")
    os.mkdir(gone)
    redis.command("CONFIG", "SET", "dir", gone)
    os.rmdir(gone)
    redis.command("CONFIG", "SET", "save", "3600 1")
    redis.command("BGSAVE")
    until(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err", what="the snapshot failed")
    with pytest.raises(RespError, match="MISCONF"):
        redis.command("SET", "x", 1)
    status, error = api.acquire("new", ttl_ms=LONG_TTL)
    assert (status, error["error"]) == (503, "store_unavailable") and "(MISCONF)" in error["message"], error
    assert "bgsave" not in error["message"] and not redis.holds("new")
    assert api.inspect("held")[0] in (200, 503)
    redis.command("CONFIG", "SET", "save", "")
    works_again(pawld)
    assert pawld.api().must("renew", "held", lease_id=grant["lease_id"])["token"] == grant["token"]


def test_another_clients_script_keeps_redis_busy(world):
    """Broken: BUSY is taken for an outcome; or calls hang until the script ends."""
    redis = world.redis(options={"busy-reply-threshold": 50})
    pawld = world.pawld(redis, FAST)
    api = pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    busy = redis.connect()
    busy.send("EVAL", "while true do end", 0)
    until_unavailable(pawld)
    unavailable(api)
    redis.command("SCRIPT", "KILL")
    with pytest.raises(RespError):
        busy.read()
    busy.close()
    works_again(pawld)
    assert pawld.api().must("renew", "held", lease_id=grant["lease_id"])["token"] == grant["token"]
    until(lambda: all("unavailable" not in key for key in residue(redis)), what="nothing of the refused calls is left")


def test_a_cluster_that_is_down(world):
    """Broken: CLUSTERDOWN is a crash, a 500, or counts as ready."""
    redis = world.redis(options={"cluster-enabled": "yes"})
    pawld = world.pawld(redis, FAST, wait="listening")
    unavailable(pawld.api())
    assert pawld.api().readyz() == 503
    says(pawld, "(CLUSTERDOWN)")


# ---------------------------------------------------------------- keys that are somebody else's


@pytest.mark.parametrize("kind", ["list", "hash", "set", "zset", "string"])
def test_a_foreign_key_where_a_lock_would_be(world, redis, kind):
    """Broken: a key that pawl did not write is overwritten, deleted, shown as a lease, or crashes it. (C09)"""
    pawld = world.pawld(redis, FAST)
    api = pawld.api()
    key = redis.lock_key("l")
    make = {"list": ("RPUSH", key, "a"), "hash": ("HSET", key, "a", "b"), "set": ("SADD", key, "a"), "zset": ("ZADD", key, 1, "a"),
            "string": ("SET", key, "some other program's \xff value")}[kind]
    redis.command(*make)
    before = redis.command("DUMP", key)
    for i, call in enumerate((
        lambda: api.acquire("l"), lambda: api.renew("l", lease_id=new_id()), lambda: api.release("l", lease_id=new_id()),
        lambda: api.check("l", token=5), lambda: api.brk("l", reason="test"), lambda: api.inspect("l"), lambda: api.list(),
    )):
        status, reply = call()
        assert status in ((503,) if i == 0 else (200, 404, 410, 503)), (i, reply)
        assert reply.get("held") is not True and reply.get("broken") is not True, (i, reply)
        assert "WRONGTYPE" not in json.dumps(reply), reply
    assert redis.command("DUMP", key) == before
    grant = api.must("acquire", "other")
    api.must("release", "other", lease_id=grant["lease_id"])
    redis.command("DEL", key)
    assert api.acquire("l")[0] == 200


BAD_KEYS = {
    "fence is a list": ("fence", ("RPUSH", "a")),
    "fence is a word": ("fence", ("SET", "abc")),
    "fence is empty": ("fence", ("SET", "")),
    "fence is negative": ("fence", ("SET", "-5")),
    "fence has a leading zero": ("fence", ("SET", "012")),
    "fence is a fraction": ("fence", ("SET", "1e15")),
    "fence is too great": ("fence", ("SET", str(2**52))),
    "fence is beyond 64 bits": ("fence", ("SET", "9" * 30)),
    "incarnation is a list": ("incarnation", ("RPUSH", "a")),
    "recovery is a list": ("recovery", ("RPUSH", "a")),
}


@pytest.mark.parametrize("what", sorted(BAD_KEYS))
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_broken_key_of_the_shard(world, redis, what, when):
    """Broken: a fence that is no number, or another's key, is worked around by handing out tokens that prove nothing."""
    key, (command, value) = BAD_KEYS[what]
    key = "pawl:{0}:" + key
    last = 0
    if when == "while":
        pawld = world.pawld(redis, FAST)
        last = pawld.api().must("acquire", "before", ttl_ms=1000)["token"]
    redis.command("DEL", key)
    redis.command(command, key, value)
    if when == "before":
        pawld = world.pawld(redis, FAST, wait="listening")
    api = pawld.api()
    # a running node may notice at once or at its next beat; until it does it may only go on from what it knows
    def answer():
        status, reply = api.acquire("l-" + new_id(), ttl_ms=1000)
        if status == 200:
            assert last < reply["token"] < 2**52, reply
        else:
            assert (status, reply["error"]) == (503, "store_unavailable"), reply
        return status

    if what.startswith("fence is too great") and when == "while":
        # the fence moved up under a running node, which is not wrong in itself: tokens stay exact up to 2^53 - 1
        status, reply = api.acquire("l")
        assert status == 503 or last < reply["token"] < 2**53
        return
    statuses = {answer() for _ in range(20)}
    if key.endswith("recovery"):
        assert pawld.running() and api.healthz() == 200
    else:
        assert 503 in statuses
        until(lambda: answer() == 503, what="refused")
        assert api.readyz() == 503 or when == "while"
    redis.command("DEL", key)
    works_again(pawld)
    assert api.must("acquire", "after")["token"] > last


def test_the_fence_is_used_up(world, redis):
    """Broken: at 2^53 two grants get one token, since a double can't tell them apart."""
    pawld = world.pawld(redis)
    api = pawld.api()
    redis.command("SET", "pawl:{0}:fence", str(2**53 - 5))
    tokens = []
    for i in range(12):
        status, reply = api.acquire(f"l{i}")
        assert status in (200, 503), reply
        if status == 200:
            tokens.append(reply["token"])
    assert tokens == sorted(set(tokens)) and all(token < 2**53 for token in tokens)
    assert api.acquire("one-more")[0] == 503


def test_two_prefixes_are_two_worlds(world, redis):
    """Broken: --key-prefix does not keep two installations apart."""
    a, b = world.pawld(redis, ["--key-prefix", "a:"]).api(), world.pawld(redis, ["--key-prefix", ""]).api()
    a.must("acquire", "l", ttl_ms=LONG_TTL)
    b.must("acquire", "l", ttl_ms=LONG_TTL)
    assert redis.command("EXISTS", "a:{0}:lock:l", "{0}:lock:l", "pawl:{0}:lock:l") == 2
    a.must("acquire", "only-a")
    assert sorted(b.list_all()[0]) == ["l"] and sorted(a.list_all()[0]) == ["l", "only-a"]


# ---------------------------------------------------------------- secrets


SECRET = "S3cr%2Ft-pa%3Ass"  # decodes to S3cr/t-pa:ss
PLAIN = "S3cr/t-pa:ss"


def nowhere(*texts):
    for text in texts:
        for secret in (SECRET, PLAIN, "S3cr"):
            assert secret not in text, text[:2000]


@pytest.mark.parametrize("given", ["flag", "flag=", "environment", "file"])
def test_the_password_is_never_visible(world, given):
    """Broken: ps, the environment in /proc, a log line, the status page or --check-config shows the password of Redis."""
    redis = world.redis(password=PLAIN)
    url = f"redis://:{SECRET}@127.0.0.1:{redis.port}/0"
    args, env = [], {}
    if given == "flag":
        args = ["--redis", url]
    elif given == "flag=":
        args = ["--redis=" + url]
    elif given == "environment":
        env = {"PAWL_REDIS": url}
    else:
        path = os.path.join(world.folder(), "pawld.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"# a comment\nredis = {url}\n")
        args = ["--config", path]
    code, out, err = run(*args, "--check-config", env=env)
    assert code == 0, err
    nowhere(out, err)
    assert f"127.0.0.1:{redis.port}" in out
    pawld = world.pawld(None, args + ["--log-level", "debug"], env=env)
    api = pawld.api()
    api.must("acquire", "l")
    for name in ("cmdline", "environ"):
        with open(f"/proc/{pawld.pid}/{name}", "rb") as f:
            nowhere(f.read().decode("utf-8", "replace"))
    nowhere(json.dumps(api.status()[1]), api.call("GET", "/readyz")[2].body.decode())
    redis.stop()
    pawld.wait_not_ready()
    nowhere(json.dumps(api.status()[1]), json.dumps(api.acquire("l2")[1]))
    nowhere(pawld.stderr(), pawld.stdout())


@pytest.mark.parametrize("url", [
    f"redis://:{SECRET}@127.0.0.1:notaport/0", f"redis://user:{SECRET}@/x/y", f"rediss://:{SECRET}@127.0.0.1:notaport/0",
    f"http://:{SECRET}@127.0.0.1:1/0",
    f"redis://:{SECRET}%zz@127.0.0.1:1/0", f":{SECRET}@127.0.0.1",
])
@pytest.mark.parametrize("given", ["flag", "environment"])
def test_a_bad_url_is_refused_without_its_password(url, given):
    """Broken: the complaint about a URL repeats its password."""
    code, out, err = run(*(["--redis", url] if given == "flag" else []), env={"PAWL_REDIS": url} if given == "environment" else None)
    assert code != 0 and code > 0 and err.strip()
    assert "redis" in (out + err).lower()
    nowhere(out, err)


def test_a_password_in_the_wrong_place_does_not_start_a_server():
    """Broken: --dev takes --redis without a word, and the wrong one of the two is used."""
    code, out, err = run("--dev", "--redis", "redis://127.0.0.1:6379/0")
    assert code > 0 and "redis" in err.lower() + out.lower()
