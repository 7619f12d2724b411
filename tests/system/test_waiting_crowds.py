"""Waiting in numbers: what a release costs Redis, what a waiter costs the node, and that thousands are served in order."""

import time

import pytest

from pawltest.fixtures import LONG
from pawltest.pawld import PATIENT, binary
from pawltest.residue import until_clean
from pawltest.waiters import Waiter, close_all, gather, hold, look, position, standing
from pawltest.wait import until

COMMANDS_MAX = 40  # Redis commands from one hand-over to the next, those inside of scripts counted too; see the test


def sanitized():
    with open(binary(), "rb") as f:
        return b"__asan_init" in f.read()


def crowd(api, addresses, name, count, wait_ms=600_000):
    """So many waiters, in the queue in this order (one node's arrive as they are sent; with two nodes the order is by ticket)."""
    waiters = []
    for i in range(count):
        waiters.append(Waiter(addresses[i % len(addresses)], name, wait_ms))
        if i % 100 == 99:  # the backlog of the listener stays short
            standing(api, name, i + 1, 60)
    standing(api, name, count, 60)
    return waiters


def commands(redis):
    """Commands that Redis has run so far, without those of the nodes' beats and of this very look. A beat is a script that reads four keys,
    looks at INFO twice, at the TIME, moves its key's end (which nothing else does) and publishes."""
    lines = redis.command("INFO", "commandstats").splitlines()
    calls = {}
    for line in lines:
        if line.startswith("cmdstat_"):
            word, _, rest = line[len("cmdstat_"):].partition(":")
            calls[word] = int(rest.partition("calls=")[2].partition(",")[0])
    beats = calls.pop("pexpire", 0)
    calls.pop("info", None)
    total = {word: count for word, count in calls.items() if not word.startswith(("config", "client"))}
    for word in ("evalsha", "mget", "time", "publish"):
        total[word] = total.get(word, 0) - beats
    return total


@pytest.mark.deadline(300)
@pytest.mark.parametrize("nodes", [1, 2])
def test_c36_commands_per_release_do_not_depend_on_the_waiters(world, redis, nodes):
    """Broken: a release wakes all waiters, or looks at all of them. (C36)"""
    pawlds = [world.pawld(redis, PATIENT) for _ in range(nodes)]
    addresses = [pawld.address for pawld in pawlds]
    api = pawlds[0].api()
    releases, found = 40, {}
    for count in (1, 50, 2000):
        name = f"crowd/{count}"
        total, done = 0, {}
        while total < releases:  # one waiter is one release: repeat
            grant = hold(api, name)
            waiters = crowd(api, addresses, name, count)
            before = commands(redis)
            api.must("release", name, lease_id=grant["lease_id"])
            take = min(count, releases)
            order = gather(waiters, 60, release="once", until_count=take)
            after = commands(redis)
            assert all(waiter.status == 200 for waiter in order)
            for word in after:
                done[word] = done.get(word, 0) + after[word] - before.get(word, 0)
            total += take
            close_all(waiters)
            standing(api, name, 0, 60)  # the rest has left
            api.brk(name, reason="who was granted it then has gone")
        found[count] = sum(done.values()) / total
        print(f"{nodes} nodes, {count} waiters: {found[count]:.2f} commands a release: "
              f"{ {word: round(n / total, 2) for word, n in sorted(done.items()) if n} }")
    assert max(found.values()) <= COMMANDS_MAX, found
    assert found[2000] <= found[50] + 8, f"grows with the waiters: {found}"
    assert found[50] <= found[1] + 6, f"grows with the waiters: {found}"


@pytest.mark.deadline(600)
def test_ten_thousand_waiters_on_one_node(world, redis):
    """Broken: a parked waiter costs a lot, costs CPU while nothing happens, or is not granted in its turn."""
    count = 10_000 if LONG else 2_000
    pawld = world.pawld(redis, [*PATIENT, "--max-connections", "12000", "--max-waiters", "11000", "--max-waiters-per-lock", "11000"])
    other = world.pawld(redis, PATIENT)
    api = other.api()
    grant = hold(pawld.api(), "park")
    base = pawld.rss()
    waiters = crowd(api, [pawld.address], "park", count)
    each = (pawld.rss() - base) / count
    print(f"{each / 1024:.1f} KiB a waiter")
    assert each < (64 if sanitized() else 16) * 1024, f"{each / 1024:.1f} KiB a waiter"
    assert pawld.api().metrics()["pawl_waiters"] == count
    assert [position(api, "park", waiters[i].lease_id) for i in (0, count // 2, count - 1)] == [1, count // 2 + 1, count]
    used = pawld.cpu_s()
    start = time.monotonic()
    time.sleep(3)  # the time over which its CPU is measured
    used = (pawld.cpu_s() - used) / (time.monotonic() - start)
    print(f"{100 * used:.1f} % CPU while nothing happens")
    assert used < 0.1, f"{100 * used:.1f} % of a CPU while nothing happens"
    start = time.monotonic()
    pawld.api().must("release", "park", lease_id=grant["lease_id"])
    gather(waiters, 300, release="once")
    print(f"{count / (time.monotonic() - start):.0f} hand-overs a second")
    tokens = [waiter.granted()["token"] for waiter in waiters]
    assert tokens == sorted(tokens), "granted in the order they came"
    assert look(api, "park")["waiters"] == 0 and not look(api, "park")["held"]
    close_all(waiters)
    until(lambda: pawld.api().metrics()["pawl_waiters"] == 0, what="nobody waits")
    until_clean(redis)


@pytest.mark.deadline(120)
@pytest.mark.parametrize("nodes", [1, 2])
def test_p6_hand_overs_one_after_the_other_do_not_let_the_queue_run_out(world, redis, nodes):
    """Broken: each grant puts off the looks that keep the queue alive in Redis, and after a while of quick hand-overs all places are gone. (P6)"""
    count = 60
    pawlds = [world.pawld(redis) for _ in range(nodes)]
    api = pawlds[0].api()
    grant = hold(api, "on")
    keys = ("pawl:{0}:queue:on", "pawl:{0}:waiters:on")
    waiters = {waiter.lease_id: waiter for waiter in crowd(api, [pawld.address for pawld in pawlds], "on", count)}
    waiters = [waiters[lease_id] for lease_id in redis.command("ZRANGE", keys[0], 0, -1)]
    begun, left = time.monotonic(), [redis.command("PTTL", key) for key in keys]
    api.must("release", "on", lease_id=grant["lease_id"])
    tokens = []
    for waiter in waiters[:50]:
        tokens.append(waiter.granted(10)["token"])
        time.sleep(0.2)  # for so long each of them holds it: ten seconds, two of the slow looks
        waiter.release()
    passed = (time.monotonic() - begun) * 1000
    for key, before in zip(keys, left):
        assert redis.command("PTTL", key) > before - passed + 1000, f"{key} was not kept alive in {passed:.0f} ms"
    gather(waiters[50:], 30, release="once")
    tokens += [waiter.token for waiter in waiters[50:]]
    assert tokens == sorted(tokens), "granted in the order they came"
    close_all(waiters)
    until_clean(redis)


@pytest.mark.deadline(300)
def test_a_crowd_that_leaves_at_once(world, redis):
    """Broken: thousands that go at the same moment leave places behind, or hold up the others. (C35, P8)"""
    count = 5000 if LONG else 1500
    pawld, other = world.pawld(redis, PATIENT), world.pawld(redis, PATIENT)
    api = other.api()
    grant = hold(api, "leave")
    waiters = crowd(api, [pawld.address], "leave", count)
    live = Waiter(other.address, "leave", 60_000)
    standing(api, "leave", count + 1)
    close_all(waiters)
    standing(api, "leave", 1, 60)
    assert position(api, "leave", live.lease_id) == 1
    api.must("release", "leave", lease_id=grant["lease_id"])
    live.granted(10)
    live.release()
    until_clean(redis)
    assert pawld.running()


@pytest.mark.deadline(300)
@pytest.mark.skipif(sanitized(), reason="ASan's memory is another")
def test_the_memory_of_a_crowd_goes_back_to_the_system(world, redis):
    """Broken: what a burst of waiters took stays with the process for ever, since what little stays among it pins it."""
    count = 8_000 if LONG else 3_000
    pawld = world.pawld(redis, [*PATIENT, "--max-connections", "12000"])
    api = pawld.api()
    grant = hold(api, "crowded")
    before = pawld.rss()
    waiters = crowd(api, [pawld.address], "crowded", count)
    peak = pawld.rss()
    assert peak - before > count * 2000, "a crowd takes memory"
    close_all(waiters)
    standing(api, "crowded", 0, 60)
    until(lambda: pawld.log("memory_given_back"), 60, "memory is given back")
    until(lambda: pawld.rss() - before < (peak - before) * 2 / 3, 30, "and is seen to be")
    print(f"{before >> 10} KiB, {peak >> 10} with {count} waiters, {pawld.rss() >> 10} after them; {pawld.log('memory_given_back')[0]['took_us']} us")
    assert len(pawld.log("memory_given_back")) == 1
    api.must("release", "crowded", lease_id=grant["lease_id"])
