"""The promises that pawl makes, each kept under the faults that usually break it. DESIGN.md section 2 numbers them.

Not here: P3 (leases put back after a loss) and P6 (the order of waiters), and a Redis clock that jumps (P2), which needs a clock that a
test
can turn.
"""

import random
import threading
import time
import uuid

import pytest

from pawltest.http import Api, Closed, Conn, lock_path
from pawltest.residue import residue, until_clean
from pawltest.wait import always, until

LONG_TTL = 600_000


def new_id():
    return str(uuid.uuid4())


# ---------------------------------------------------------------- P1 exclusion


def hammer(addresses, names, for_s, inside, problems, seed):
    """One client: takes, checks that it is alone, gives up. `inside` maps a name to who is in."""
    rng = random.Random(seed)
    apis = [Api(address) for address in addresses]
    end = time.monotonic() + for_s
    grants = 0
    try:
        while time.monotonic() < end and not problems:
            name = rng.choice(names)
            status, grant = rng.choice(apis).acquire(name, ttl_ms=LONG_TTL)
            if status == 409:
                continue
            assert status == 200, grant
            grants += 1
            other = inside.setdefault(name, grant["lease_id"])
            if other != grant["lease_id"]:
                problems.append(f"{name}: {grant['lease_id']} was granted while {other} held it")
            if rng.random() < 0.3:
                rng.choice(apis).must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
            del inside[name]
            rng.choice(apis).must("release", name, lease_id=grant["lease_id"])
    except BaseException as error:
        problems.append(repr(error))
    finally:
        for api in apis:
            api.close()
    if grants == 0:
        problems.append("a client was never granted anything")


def test_p1_two_leases_are_never_live_at_once(world, redis):
    """Broken: two clients, on two nodes over one Redis, both told that they hold the same lock."""
    nodes = [world.pawld(redis), world.pawld(redis)]
    inside, problems = {}, []
    threads = [threading.Thread(target=hammer, args=([n.address for n in nodes], ["a", "b", "c/d"], 4, inside, problems,
        i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    until_clean(redis)


def test_p1_holds_over_a_restart_of_pawld(pawld, redis):
    """Broken: a restarted daemon forgets, or frees, what its clients hold. (C50: renewed at the new process with the same token.)"""
    grant = pawld.api().must("acquire", "l", ttl_ms=LONG_TTL, owner="before")
    for restart in (pawld.restart, lambda: (pawld.kill9(), pawld.start())):
        restart()
        api = pawld.api()
        status, held = api.acquire("l")
        assert (status, held["error"], held["holder"]["token"], held["holder"]["owner"]) == (409, "held", grant["token"], "before")
        renewed = api.must("renew", "l", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
        assert renewed["token"] == grant["token"]
    pawld.api().must("release", "l", lease_id=grant["lease_id"])


def test_p1_holds_over_a_redis_restart_that_keeps_its_data(pawld, redis):
    """Broken: the new life of the data opens with its locks forgotten."""
    grant = pawld.api().must("acquire", "l", ttl_ms=LONG_TTL)
    redis.restart(keep_data=True)
    pawld.wait_ready()
    api = pawld.api()
    status, held = until(lambda: _not_unavailable(api.acquire("l")), what="an answer after the restart")
    assert (status, held["holder"]["token"]) == (409, grant["token"])
    assert api.must("renew", "l", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]


def _not_unavailable(answer):
    return None if answer[0] == 503 else answer


# ---------------------------------------------------------------- P2 fence


def take(api, name, **params):
    """Acquires as soon as that is possible; 503 is an answer that passes, 409 and others are not expected."""
    status, grant = until(lambda: _not_unavailable(api.acquire(name, **params)), what=f"{name} granted")
    assert status == 200, grant
    return grant


def _expiry(world, redis, pawld, name):
    until(lambda: redis.pttl(name) == -2, what="lease expired")


def _released(after=lambda world, redis, pawld: None):
    def run(world, redis, pawld, name, lease):
        pawld.api().must("release", name, lease_id=lease)
        after(world, redis, pawld)

    return run


def _kill_redis(world, redis, pawld):
    redis.kill9()
    redis.start()


def _roll_back(world, redis, pawld):
    """Redis comes back with a snapshot that is older than the newest tokens."""
    api = pawld.api()
    snapshot = redis.save_copy()
    for i in range(20):
        lease = api.must("acquire", "other")["lease_id"]
        api.must("release", "other", lease_id=lease)
    redis.kill9()
    redis.start_from(snapshot)


EVENTS = {
    "release": _released(),
    "expiry": lambda world, redis, pawld, name, lease: until(lambda: redis.pttl(name) == -2, what="lease expired"),
    "break": lambda world, redis, pawld, name, lease: pawld.api().must("brk", name, reason="test"),
    "redis_killed_without_persistence": lambda world, redis, pawld, name, lease: _kill_redis(world, redis, pawld),
    "redis_restarted_with_data": _released(lambda world, redis, pawld: redis.restart(keep_data=True)),
    "redis_rolled_back": _released(_roll_back),
    "flushall": lambda world, redis, pawld, name, lease: redis.command("FLUSHALL"),
    "fence_deleted": _released(lambda world, redis, pawld: redis.command("DEL", "pawl:{0}:fence")),
    "incarnation_deleted": _released(lambda world, redis, pawld: redis.command("DEL", "pawl:{0}:incarnation")),
    "fence_set_back": _released(lambda world, redis, pawld: redis.command("SET", "pawl:{0}:fence", "7")),
    "fence_set_back_by_one": _released(lambda world, redis, pawld: redis.command("DECR", "pawl:{0}:fence")),
    "script_flush": _released(lambda world, redis, pawld: redis.command("SCRIPT", "FLUSH")),
    "pawld_restarted": _released(lambda world, redis, pawld: pawld.restart()),
    "pawld_killed": _released(lambda world, redis, pawld: (pawld.kill9(), pawld.start())),
    "pawld_restarted_after_redis_was_killed": lambda world, redis, pawld, name, lease: (
        pawld.stop(), _kill_redis(world, redis, pawld), pawld.start()),
    "pawld_restarted_after_script_flush": _released(
        lambda world, redis, pawld: (pawld.stop(), redis.command("SCRIPT", "FLUSH"), pawld.start())),
    "pawld_restarted_after_flushall": _released(lambda world, redis, pawld: (pawld.stop(), redis.command("FLUSHALL"), pawld.start())),
}


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_p2_the_later_grant_has_the_greater_token(world, redis, pawld, name, event):
    """Broken: after this event a token is handed out that is not above the earlier ones, and a guard lets an old holder write. (C10)"""
    ttl = 300 if event == "expiry" else LONG_TTL
    tokens = []
    for _ in range(3):
        grant = take(pawld.api(), name, ttl_ms=ttl)
        assert 0 < grant["token"] < 2**53
        tokens.append(grant["token"])
        EVENTS[event](world, redis, pawld, name, grant["lease_id"])
    tokens.append(take(pawld.api(), name)["token"])
    assert tokens == sorted(set(tokens)), f"after {event}: {tokens}"


def test_p2_failover_to_a_stale_replica(world, redis):
    """Broken: a replica that lags is promoted and hands out tokens that the old master had handed out already. (C10 d)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url)
    replica = world.redis(options={"replicaof": f"{redis.host} {redis.port}"})
    until(lambda: replica.info("replication").get("master_link_status") == "up", what="replica in step")
    api = pawld.api()
    tokens = []
    replica.sigstop()
    for _ in range(30):
        grant = api.must("acquire", "l", ttl_ms=LONG_TTL)
        tokens.append(grant["token"])
        api.must("release", "l", lease_id=grant["lease_id"])
    redis.kill9()
    proxy.cut()
    replica.sigcont()
    until(replica.loaded, what="replica answers")
    replica.command("REPLICAOF", "NO", "ONE")
    proxy.target = replica.address
    # another lock: of the first one the replica may have got a grant and not its release
    tokens.append(take(pawld.api(), "another")["token"])
    assert tokens == sorted(set(tokens)), tokens


def test_p2_tokens_rise_across_locks_and_nodes(world, redis):
    """Broken: each node counts for itself, or each lock does."""
    apis = [world.pawld(redis).api() for _ in range(3)]
    tokens = [apis[i % 3].must("acquire", f"l{i}", ttl_ms=LONG_TTL)["token"] for i in range(60)]
    assert tokens == sorted(set(tokens))


def test_p2_digits_are_exact_above_2_to_the_50(api, redis):
    """Broken: Lua prints a large token with an exponent or rounds it, and two grants get one token."""
    first = api.must("acquire", "a")["token"]
    second = api.must("acquire", "b")["token"]
    assert second == first + 1 and first > 10**15
    assert redis.command("GET", "pawl:{0}:fence") == str(second)
    assert api.inspect("a")[1]["token"] == first


# ---------------------------------------------------------------- P4 ownership


def unchanged(api, redis, name, grant, floor_ms=LONG_TTL - 120_000):
    """The lock is held by this very grant, with most of its ttl."""
    seen = api.inspect(name)[1]
    assert seen["held"] is True and seen["token"] == grant["token"], seen
    assert floor_ms < redis.pttl(name) <= LONG_TTL
    return True


STRANGERS = {
    "random": lambda lease: new_id(),
    "one digit off": lambda lease: lease[:-1] + ("0" if lease[-1] != "0" else "1"),
}
MALFORMED = {
    "empty": lambda lease: "",
    "prefix": lambda lease: lease[:8],
    "without dashes": lambda lease: lease.replace("-", ""),
    "longer": lambda lease: lease + "0",
    "blank around": lambda lease: f" {lease} ",
    "braces": lambda lease: "{" + lease + "}",
    "nil uuid": lambda lease: str(uuid.UUID(int=0)),
    "number": lambda lease: 5,
    "true": lambda lease: True,
    "null": lambda lease: None,
    "list": lambda lease: [lease],
    "object": lambda lease: {"id": lease},
}


@pytest.mark.parametrize("kind", sorted(STRANGERS) + sorted(MALFORMED))
def test_p4_a_stranger_is_told_so_and_changes_nothing(broker, name, kind):
    """Broken: somebody who does not know the lease id frees or prolongs another's lease. (C40)"""
    api = broker.api
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    stranger = {**STRANGERS, **MALFORMED}[kind](grant["lease_id"])
    for verb, params in (("renew", {"ttl_ms": LONG_TTL}), ("renew", {"ttl_ms": 1000}), ("release", {})):
        status, error = getattr(api, verb)(name, lease_id=stranger, **params)
        if kind in STRANGERS:
            assert (status, error["error"]) == (410, "lease_lost")
        else:
            assert (status, error["error"]) == (400, "bad_request") and "lease_id" in error["message"]
        unchanged(api, broker.redis, name, grant)


def test_p4_the_lease_id_may_be_spelled_in_either_case(broker, name):
    """Broken: a client library that prints UUIDs in capitals loses its leases; or two spellings are two leases."""
    lease = new_id()
    grant = broker.api.must("acquire", name, lease_id=lease.upper(), ttl_ms=LONG_TTL)
    assert grant["lease_id"].lower() == lease
    assert broker.api.must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert broker.api.must("renew", name, lease_id=lease.upper(), ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert broker.api.must("release", name, lease_id=lease)["released"] is True


def test_p4_a_lease_is_good_for_its_own_lock_only(broker, name):
    """Broken: the lease id of one lock renews or frees another."""
    api = broker.api
    a, b = api.must("acquire", name + ".a", ttl_ms=LONG_TTL), api.must("acquire", name + ".b", ttl_ms=LONG_TTL)
    for verb in ("renew", "release"):
        status, error = getattr(api, verb)(name + ".a", lease_id=b["lease_id"])
        assert (status, error["error"]) == (410, "lease_lost")
    unchanged(api, broker.redis, name + ".a", a)
    unchanged(api, broker.redis, name + ".b", b)


def test_p4_a_late_holder_cannot_touch_the_next_one(broker, name):
    """Broken: a holder whose lease has run out frees, prolongs or revives a lock that is free or another's by now. (C40, C41)"""
    api, redis = broker.api, broker.redis
    late = api.must("acquire", name, ttl_ms=200)
    until(lambda: redis.pttl(name) == -2, what="lease expired")
    for verb in ("renew", "release"):
        status, error = getattr(api, verb)(name, lease_id=late["lease_id"])
        assert (status, error["error"]) == (410, "lease_lost")
        assert not redis.holds(name), f"{verb} brought a dead lease back"
    assert api.check(name, token=late["token"])[0] == 410
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    for verb, params in (("renew", {"ttl_ms": 5}), ("renew", {}), ("release", {})):
        status, error = getattr(api, verb)(name, lease_id=late["lease_id"], **params)
        assert (status, error["error"]) == (410, "lease_lost")
        unchanged(api, redis, name, grant)
    assert api.check(name, token=late["token"])[0] == 410
    assert api.check(name, token=grant["token"])[0] == 200


def test_p4_after_release_and_after_break(broker, name):
    """Broken: what was given up or broken can be renewed. (C41)"""
    api, redis = broker.api, broker.redis
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    api.must("release", name, lease_id=grant["lease_id"])
    assert api.renew(name, lease_id=grant["lease_id"])[0] == 410
    assert api.release(name, lease_id=grant["lease_id"])[0] == 410
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    api.must("brk", name, reason="test")
    assert api.renew(name, lease_id=grant["lease_id"])[0] == 410
    assert api.release(name, lease_id=grant["lease_id"])[0] == 410
    assert not redis.holds(name)
    assert api.renew("never-" + name, lease_id=new_id())[0] == 410
    assert residue_of(redis, name) == []


def residue_of(redis, name):
    return [key for key in redis.keys() if name in key]


def test_p4_release_around_the_instant_of_expiry(broker, name):
    """Broken: a release that races with expiry frees the next holder. (C40, the tight loop)"""
    with Conn(broker.pawld.address) as first, Conn(broker.pawld.address) as second:
        seen = set()
        for i in range(80):
            lock, ttl = f"{name}.{i}", 30
            start = time.monotonic()
            status, late = broker.api.acquire(lock, ttl_ms=ttl)
            if status == 503:
                continue  # the machine was away for longer than the lease: nobody was told of it
            assert status == 200, late
            while time.monotonic() < start + (ttl - 4 + i % 8) / 1000:
                pass  # the instant itself is the point
            first.send_request("POST", lock_path(lock, "acquire"), {"ttl_ms": LONG_TTL})
            second.send_request("POST", lock_path(lock, "release"), {"lease_id": late["lease_id"]})
            taken, freed = first.read_reply(), second.read_reply()
            assert taken.status in (200, 409) and freed.status in (200, 410), (taken, freed)
            seen.add((taken.status, freed.status))
            if taken.status == 200:
                now = broker.api.inspect(lock)[1]
                assert now["held"] is True and now["token"] == taken.json()["token"], now
                assert broker.api.release(lock, lease_id=late["lease_id"])[0] == 410
                assert broker.redis.pttl(lock) > LONG_TTL - 120_000
        assert len(seen) > 1, f"the instant was never met: {seen}"


# ---------------------------------------------------------------- P5 no overstatement


def measured(redis, name, call):
    """(status, reply, ms that Redis still has and what has passed since the reply was read)."""
    status, reply = call()
    read = time.monotonic()
    left = redis.pttl(name)
    return status, reply, left + (time.monotonic() - read) * 1000


def test_p5_time_in_redis_is_subtracted(world, redis, name):
    """Broken: the lifetime is counted from the answer and not from the question, so the client's idea of the end is later than Redis'.
    (C39)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "30s"])
    api = pawld.api()
    lease, ttl = new_id(), 60_000
    api.must("acquire", "warm", ttl_ms=1000)
    proxy.delay_up_s = proxy.delay_down_s = 0.3
    for verb in ("acquire", "renew", "acquire"):
        status, reply, left = measured(redis, name, lambda verb=verb: getattr(api, verb)(name, lease_id=lease, ttl_ms=ttl))
        assert status == 200, reply
        assert reply["ttl_ms"] <= ttl - 590, f"{verb}: the round trip of 600 ms is missing: {reply}"
        assert reply["ttl_ms"] <= left, f"{verb}: told {reply['ttl_ms']} ms while Redis has {left:.0f}"
        assert reply["ttl_ms"] > ttl - 30_000, f"{verb}: far too little: {reply}"


def test_p5_what_others_are_shown_does_not_exceed_redis_either(world, redis, name):
    """Broken: a 409, a check, an inspect or a list promises that the lease lives longer than it does."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "30s"])
    api = pawld.api()
    token = api.must("acquire", name, ttl_ms=60_000)["token"]
    proxy.delay_down_s = 0.5
    calls = {
        "check": lambda: api.check(name, token=token),
        "inspect": lambda: api.inspect(name),
        "acquire": lambda: api.acquire(name),
        "list": lambda: api.list(prefix=name),
    }
    for what, call in calls.items():
        status, reply, left = measured(redis, name, call)
        assert status == (409 if what == "acquire" else 200), reply
        shown = reply["holder"] if what == "acquire" else reply["locks"][0] if what == "list" else reply
        # whatever the machine does, the answer was on its way for the half second that the proxy kept it
        assert 0 < shown["ttl_ms"] <= left + 100, f"{what}: shows {shown['ttl_ms']} ms while Redis has {left:.0f}"


def test_p5_a_grant_that_comes_too_late_is_undone(world, redis, name):
    """Broken: a grant is reported whose ttl has run out on the way."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "30s"])
    api = pawld.api()
    api.must("acquire", "warm", ttl_ms=1000)
    proxy.delay_up_s = 1.5  # in Redis the lease is fresh when the asker's ttl is over
    lease = new_id()
    status, error = api.acquire(name, lease_id=lease, ttl_ms=1000)
    assert (status, error["error"], error["lease_id"]) == (503, "store_unavailable", lease)
    proxy.delay_up_s = 0
    until(lambda: api.metrics()["pawl_undone_grants_total"] >= 1 or not redis.holds(name), what="the grant is taken back")
    until(lambda: api.acquire(name, ttl_ms=1000)[0] == 200, what="free again")


# ---------------------------------------------------------------- P7 retry


def test_p7_acquire_with_the_same_lease_id_is_the_same_lease(broker, name):
    """Broken: a repeated acquire is refused by the caller's own lock, gets another token, or shortens the lease. (C05)"""
    api, redis = broker.api, broker.redis
    lease = new_id()
    first = api.must("acquire", name, lease_id=lease, ttl_ms=60_000, owner="me")
    again = api.must("acquire", name, lease_id=lease, ttl_ms=300_000, owner="me")
    assert (again["token"], again["lease_id"]) == (first["token"], lease) and again["ttl_ms"] > 240_000
    shorter = api.must("acquire", name, lease_id=lease, ttl_ms=1_000, owner="me")
    assert shorter["token"] == first["token"] and shorter["ttl_ms"] > 200_000, "the longer of the ttl asked and the ttl left"
    assert redis.pttl(name) > 200_000
    other = new_id()
    status, held = api.acquire(name, lease_id=other)
    assert (status, held["error"], held["lease_id"]) == (409, "held", other)
    api.must("release", name, lease_id=lease)
    assert api.release(name, lease_id=lease)[0] == 410, "a repeated release is told so"


def test_p7_reply_lost_between_pawld_and_client(world, pawld, redis, name):
    """Broken: the answer was lost on the way to the client, who retries and is shut out by its own lease, or by an undo. (C05)"""
    host, port = pawld.address.rsplit(":", 1)
    proxy = world.proxy((host, int(port)))
    lease = new_id()
    proxy.lose_reply_to(lease)
    api = Api(proxy.http_address)
    with pytest.raises((OSError, Closed, AssertionError)):
        api.acquire(name, lease_id=lease, ttl_ms=LONG_TTL)
    assert proxy.reply_was_lost()
    direct = pawld.api()
    grant = direct.must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
    assert grant["lease_id"] == lease
    assert direct.acquire(name)[0] == 409
    always(lambda: direct.renew(name, lease_id=lease, ttl_ms=LONG_TTL)[0] == 200, 1.0, "a lease that a retry was told it holds")
    proxy.lose_reply_to(lease)
    with pytest.raises((OSError, Closed, AssertionError)):
        api.release(name, lease_id=lease)
    assert direct.release(name, lease_id=lease)[0] == 410 and not redis.holds(name)
    api.close()


def lose_grant(proxy, redis, api, name, lease):
    """Makes Redis grant and lose the answer; returns the name under which that came off (a beat's answer may have been cut instead)."""
    for i in range(20):
        attempt = f"{name}.{i}"
        proxy.lose_reply_to(lease)
        status, error = api.acquire(attempt, lease_id=lease, ttl_ms=LONG_TTL)
        if proxy.reply_was_lost():
            return attempt, status, error
        assert status == 503, error
    raise AssertionError("no reply could be lost")


def test_p7_reply_lost_between_redis_and_pawld_then_retried(world, redis, name):
    """Broken: an outcome that pawl could not learn is called held or free; or the undo kills the lease that the retry was told it holds."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url)
    api = pawld.api()
    lease = new_id()
    attempt, status, error = lose_grant(proxy, redis, api, name, lease)
    if status != 200:  # pawld may have run it again within the deadline: the same lease id makes that safe
        assert (status, error["error"], error["lease_id"]) == (503, "store_unavailable", lease)
    status, grant = until(lambda: _not_unavailable(api.acquire(attempt, lease_id=lease, ttl_ms=LONG_TTL)), what="an answer to the retry")
    assert status == 200, grant
    always(lambda: api.renew(attempt, lease_id=lease, ttl_ms=LONG_TTL)[0] == 200, 2.0, "the lease that the retry was told it holds")
    assert api.check(attempt, token=grant["token"])[0] == 200
    api.must("release", attempt, lease_id=lease)


def test_p7_reply_lost_between_redis_and_pawld_and_given_up(world, redis, name):
    """Broken: nobody retries, and the grant that nobody was told of blocks the lock for the whole of its ttl."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url)
    api = pawld.api()
    attempt, status, error = lose_grant(proxy, redis, api, name, new_id())
    if status == 200:
        api.must("release", attempt, lease_id=error["lease_id"])
    until(lambda: api.acquire(attempt)[0] == 200, what="the orphan is undone")


@pytest.mark.parametrize("via", ["the same node", "another node"])
def test_p7_the_undo_for_a_vanished_client_spares_its_own_retry(world, redis, name, via):
    """Broken: a client leaves while its acquire is on the way and repeats it elsewhere; the first call's undo kills the lease that the
    second was
    told it holds."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "60s"])
    other = pawld if via == "the same node" else world.pawld(redis)
    pawld.api().must("acquire", "warm", ttl_ms=1000)
    lease = new_id()
    proxy.stall_down = True
    first = Conn(pawld.address)
    first.send_request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": LONG_TTL})
    until(lambda: redis.holds(name), what="granted in Redis")
    first.reset()
    with Conn(other.address) as second:
        second.send_request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": LONG_TTL})
        if other is pawld:
            until(lambda: pawld.api().metrics()["pawl_store_waiting"] == 1, what="the repeated call stands behind the first")
        else:
            assert second.read_reply().status == 200
        proxy.stall_down = False
        if other is pawld:
            reply = second.read_reply()
            assert reply.status == 200 and reply.json()["lease_id"] == lease, reply
    always(lambda: other.api().renew(name, lease_id=lease, ttl_ms=LONG_TTL)[0] == 200, 1.5, "the lease that the retry was told it holds")
    other.api().must("release", name, lease_id=lease)


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_p7_renew_and_release_whose_answer_was_lost(world, redis, name, verb):
    """Broken: a call whose outcome is unknown is reported as success or as lease_lost."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url)
    api = pawld.api()
    lease = new_id()
    grant = api.must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
    proxy.lose_reply_to(lease)
    status, reply = getattr(api, verb)(name, lease_id=lease)
    assert proxy.reply_was_lost()
    if verb == "renew":
        assert status in (200, 503), reply
        status, again = until(lambda: _not_unavailable(api.renew(name, lease_id=lease)), what="an answer")
        assert status == 200 and again["token"] == grant["token"], again
    else:
        assert status in (200, 410, 503), reply
        status, again = until(lambda: _not_unavailable(api.release(name, lease_id=lease)), what="an answer")
        assert status in (200, 410), again
        assert not redis.holds(name)


# ---------------------------------------------------------------- P8 nothing leaks


def test_p8_nothing_is_left_for_a_free_lock(pawld, api, redis):
    """Broken: Redis keeps something for every name ever used. (C37)"""
    for i in range(200):
        grant = api.must("acquire", f"free/{i}", ttl_ms=LONG_TTL)
        assert api.acquire(f"free/{i}")[0] == 409
        api.must("renew", f"free/{i}", lease_id=grant["lease_id"])
        api.inspect(f"free/{i}")
        api.check(f"free/{i}", token=grant["token"])
        if i % 3 == 0:
            api.must("brk", f"free/{i}", reason="test")
        else:
            api.must("release", f"free/{i}", lease_id=grant["lease_id"])
        api.inspect(f"never/{i}")
        api.renew(f"never/{i}", lease_id=new_id())
        api.release(f"never/{i}", lease_id=new_id())
        api.brk(f"never/{i}", reason="test")
    for i in range(50):
        api.must("acquire", f"gone/{i}", ttl_ms=50)
    until_clean(redis)
    assert len([key for key in redis.keys() if ":node:" in key]) == 1
    assert redis.command("PTTL", [key for key in redis.keys() if ":node:" in key][0]) > 0, "a dead node's key must go away"


def test_p8_the_key_of_a_dead_node_goes_away(world, redis):
    """Broken: every restart leaves a node key behind for ever."""
    pawld = world.pawld(redis)
    pawld.kill9()
    until(lambda: [key for key in redis.keys() if ":node:" in key] == [], 60, "the node's key is gone")


@pytest.mark.parametrize("via, how", [("tcp", "close"), ("tcp", "reset"), ("unix", "close")])
def test_p8_the_grant_of_a_client_that_vanished_is_released(world, redis, name, how, via):
    """Broken: a client leaves while its acquire is on the way, and its grant blocks the lock for the whole ttl. (C02)"""
    proxy = world.proxy(redis.address)
    listen = "127.0.0.1:0" if via == "tcp" else f"unix:{world.folder()}/http"
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "20s"], listen=[listen])
    api = pawld.api()
    api.must("acquire", "warm", ttl_ms=1000)
    proxy.stall_down = True
    conn = Conn(pawld.address)
    conn.send_request("POST", lock_path(name, "acquire"), {"ttl_ms": LONG_TTL})
    until(lambda: redis.holds(name), what="granted in Redis")
    (conn.close if how == "close" else conn.reset)()
    proxy.stall_down = False
    until(lambda: not redis.holds(name), what="given back")
    until(lambda: api.metrics()["pawl_undone_grants_total"] >= 1, what="and counted")
    assert api.acquire(name)[0] == 200


@pytest.mark.parametrize("headers", [[], [("Connection", "close")]], ids=["keep-alive", "one-call"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_p8_a_client_that_left_in_the_very_turn_of_the_answer(world, redis, name, how, headers):
    """Broken: the client has closed, but its closing was not looked at yet when Redis' answer was read in the same turn of the loop: the
    grant counts
    as delivered and blocks the lock for its whole ttl. (C02)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "60s"])
    api = pawld.api()
    api.must("acquire", "warm", ttl_ms=1000)
    proxy.stall_down = True
    conn = Conn(pawld.address)
    conn.send_request("POST", lock_path(name, "acquire"), {"ttl_ms": LONG_TTL}, headers)
    until(lambda: redis.holds(name), what="granted in Redis")
    pawld.sigstop()
    until(lambda: not proxy.idle(), what="the answer of Redis has come as far as the proxy")
    proxy.stall_down = False
    until(proxy.idle, what="the answer of Redis lies before pawld")
    (conn.close if how == "close" else conn.reset)()
    pawld.sigcont()
    until(lambda: not redis.holds(name), what="given back")


def test_p8_a_client_that_only_closed_its_sending_side_keeps_its_grant(world, redis, name):
    """Broken: the care for vanished clients takes the lease of one that is still reading. (C45)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "20s"])
    proxy.delay_down_s = 0.2
    with Conn(pawld.address) as conn:
        conn.send_request("POST", lock_path(name, "acquire"), {"ttl_ms": LONG_TTL})
        conn.half_close()
        reply = conn.read_reply()
        assert reply.status == 200, reply
        proxy.delay_down_s = 0
        grant = reply.json()
        always(lambda: redis.holds(name), 0.5, "the lease of a client that reads")
        pawld.api().must("release", name, lease_id=grant["lease_id"])


def test_p8_many_that_vanish_leave_nothing(world, redis):
    """Broken: one in many vanished clients leaves its lock taken. (C02: in the same instant as the answer)"""
    pawld = world.pawld(redis)
    rng = random.Random(1)
    unanswered = set()
    for i in range(400):
        conn = Conn(pawld.address)
        conn.send_request("POST", lock_path(f"v/{i}", "acquire"), {"ttl_ms": LONG_TTL})
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.002)  # spreads the leaving over the life of the request; no state is waited for
        if not conn.answered():
            unanswered.add(redis.lock_key(f"v/{i}"))
        (conn.reset if rng.random() < 0.5 else conn.close)()
    assert len(unanswered) > 50, "too quick to be left: the test has seen nothing"
    # an answer that came between the last look and the leaving can't be told from one that was read; there can't be many of these
    until(lambda: len(unanswered & redis.keys()) <= len(unanswered) // 10, what="no lock is held for a client that left before the answer")


# ---------------------------------------------------------------- P9 bounded


def test_p9_over_a_limit_nothing_is_lost(world, redis):
    """Broken: going over a limit costs somebody else's lease or the daemon. Each is a clear error."""
    pawld = world.pawld(redis, ["--max-connections", "20"])
    holder = pawld.api()
    grant = holder.must("acquire", "kept", ttl_ms=LONG_TTL)
    tries = [
        ("POST", lock_path("x" * 256, "acquire"), None, 400, "bad_request"),
        ("POST", lock_path("x" * 9000, "acquire"), None, 414, "uri_too_long"),
        ("POST", lock_path("x", "acquire"), b" " * (64 * 1024 + 1), 413, "too_large"),
        ("POST", lock_path("x", "acquire"), {"owner": "o" * 256}, 400, "bad_request"),
        ("POST", lock_path("x", "acquire"), {"ttl_ms": 86_400_001}, 400, "bad_request"),
        ("POST", lock_path("x", "acquire"), {"wait_ms": 600_001}, 400, "bad_request"),
        ("POST", lock_path("kept", "break"), {"reason": "r" * 256}, 400, "bad_request"),
        ("GET", "/v1/locks?limit=1001", None, 400, "bad_request"),
    ]
    for method, target, body, status, code in tries:
        with Conn(pawld.address) as conn:
            reply = conn.request(method, target, body)
            assert (reply.status, reply.json()["error"]) == (status, code), (target[:60], reply)
    with Conn(pawld.address) as conn:
        reply = conn.request("GET", "/healthz", headers=[("X-Long", "y" * 17_000)])
        assert (reply.status, reply.json()["error"]) == (431, "headers_too_large")
    with Conn(pawld.address) as conn:
        reply = conn.request("GET", "/healthz", headers=[(f"X-{i}", "y") for i in range(70)])
        assert (reply.status, reply.json()["error"]) == (431, "headers_too_large")
    assert not redis.holds("x")
    unchanged(holder, redis, "kept", grant)


def test_p9_connections_over_the_limit_are_told_so(world, redis):
    """Broken: the client over the limit hangs, or throws an earlier one out."""
    pawld = world.pawld(redis, ["--max-connections", "10"])
    conns = [pawld.conn() for _ in range(10)]
    for conn in conns:
        assert conn.request("GET", "/healthz").status == 200
    with Conn(pawld.address) as extra:
        reply = extra.read_reply()
        assert (reply.status, reply.json()["error"]) == (429, "too_many_connections")
        assert extra.at_eof()
    for i, conn in enumerate(conns):
        assert conn.request("POST", lock_path(f"c/{i}", "acquire"), {"ttl_ms": LONG_TTL}).status == 200
    conns.pop().close()
    until(lambda: _served(pawld.address), what="a place is free again")


def _served(address):
    with Conn(address) as conn:
        try:
            return conn.request("GET", "/healthz").status == 200
        except (OSError, Closed):
            return False


def test_p9_calls_behind_a_frozen_redis_are_bounded(world, redis):
    """Broken: a Redis that does not answer fills the daemon's memory. Each caller is told within the store's deadline."""
    pawld = world.pawld(redis, ["--store-timeout", "300ms"])
    api = pawld.api()
    grant = api.must("acquire", "kept", ttl_ms=LONG_TTL)
    redis.sigstop()
    conns = [pawld.conn() for _ in range(200)]
    for round_ in range(5):
        for i, conn in enumerate(conns):
            conn.send_request("POST", lock_path(f"b/{round_}/{i}", "acquire"))
        for conn in conns:
            reply = conn.read_reply()
            assert (reply.status, reply.json()["error"]) == (503, "store_unavailable")
    redis.sigcont()
    pawld.wait_ready()
    assert until(lambda: _not_unavailable(api.renew("kept", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)), what="renewed")[0] == 200
    until(lambda: residue(redis) == ["pawl:{0}:lock:kept"], what="nothing of the refused is left")
