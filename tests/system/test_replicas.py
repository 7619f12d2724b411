"""--min-replicas: a grant and a renewal are told only when so many replicas have them. P1 where a master is cut off or dies right after its answer."""

import concurrent.futures

import pytest

from pawltest.http import lock_path
from pawltest.pawld import run
from pawltest.wait import always, until
from pawltest.waiters import new_id

LONG_TTL = 600_000


def fast(timeout="300ms", least=1):
    return ["--min-replicas", str(least), "--replica-timeout", timeout]


@pytest.fixture
def pair(world):
    """A master and one replica in sync."""
    return make_pair(world)


def make_pair(world, replicas=1):
    group = world.group(start=False, replicas=replicas, sentinels=0)
    group.start(sentinels=False)
    return group.servers


def freeze(replica):
    replica.sigstop()


def waits(server):
    told = server.command("INFO", "commandstats")
    line = next((line for line in told.splitlines() if line.startswith("cmdstat_wait:")), "cmdstat_wait:calls=0,")
    return int(line.split("calls=")[1].split(",")[0])


def test_reply_says_how_many_replicas_have_it(world, pair, name):
    """Broken: a grant is told before any replica has it, or the reply does not say."""
    master, replica = pair
    api = world.pawld(master, fast("10s")).api()
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    assert grant["replicas"] == 1 and replica.holds(name)
    renewed = api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    assert renewed["replicas"] == 1 and renewed["token"] == grant["token"]
    again = api.must("acquire", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    assert again["replicas"] == 1 and again["token"] == grant["token"]
    api.must("release", name, lease_id=grant["lease_id"])
    assert "replicas" not in world.pawld(master).api().must("acquire", name)


def test_grant_that_replicas_lack_is_undone(world, pair, name):
    """Broken: a grant that only the master has is told, or is refused and yet held. (P7, P8)"""
    master, replica = pair
    pawld = world.pawld(master, fast())
    api = pawld.api()
    before = api.must("acquire", f"{name}/before", ttl_ms=LONG_TTL)
    freeze(replica)
    lease_id = new_id()
    status, answer = api.acquire(name, ttl_ms=LONG_TTL, lease_id=lease_id)
    assert (status, answer["error"], answer["lease_id"]) == (503, "not_replicated", lease_id)
    until(lambda: not master.holds(name), what="the grant is undone")
    until(lambda: api.metrics()["pawl_undone_grants_total"] == 1, what="the node has heard that it is")
    assert api.metrics()["pawl_not_replicated_total"] == 1
    assert pawld.log("too_few_replicas")
    replica.sigcont()
    after = api.must("acquire", name, ttl_ms=LONG_TTL)
    assert after["token"] > before["token"] and after["replicas"] == 1


def test_renewal_that_replicas_lack_is_refused_and_undoes_nothing(world, pair, name):
    """Broken: a holder is told of a renewal that a failover takes back; or loses its lease to a slow replica. (P1)"""
    master, replica = pair
    api = world.pawld(master, fast()).api()
    grant = api.must("acquire", name, ttl_ms=60_000)
    freeze(replica)
    status, answer = api.renew(name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    assert (status, answer["error"]) == (503, "not_replicated")
    assert master.holds(name) and api.check(name, token=grant["token"])[0] == 200
    replica.sigcont()
    assert api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]


def test_repeated_acquire_that_replicas_lack_keeps_the_lease(world, pair, name):
    """Broken: a retry undoes the lease that the first call was told of. (P7)"""
    master, replica = pair
    api = world.pawld(master, fast()).api()
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    freeze(replica)
    status, answer = api.acquire(name, ttl_ms=LONG_TTL, lease_id=grant["lease_id"])
    assert (status, answer["error"]) == (503, "not_replicated")
    always(lambda: master.holds(name), 0.5, "the lease stands")
    replica.sigcont()
    assert api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]


@pytest.mark.parametrize("verb", ["acquire", "renew"])
def test_p3_what_is_broken_while_replicas_are_waited_for_does_not_come_back(world, pair, name, verb):
    """Broken: the answer to the call comes after that to the break, though it ran before; the node vouches for the lease again, and after a loss of the data puts
    back what was broken. (H7)"""
    master, replica = pair
    pawld = world.pawld(master, fast("2s"))
    api, lease_id = pawld.api(), new_id()
    if verb == "renew":
        api.must("acquire", name, ttl_ms=LONG_TTL, lease_id=lease_id)
    before = master.command("GET", master.lock_key(name))
    freeze(replica)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(lambda: getattr(pawld.api(), verb)(name, lease_id=lease_id, ttl_ms=LONG_TTL))
        until(lambda: master.command("GET", master.lock_key(name)) != before, what="it has run")
        assert api.brk(name, reason="test")[0] == 200
        assert not call.done(), "the replicas are not waited for any more: this test tries nothing"
        replica.sigcont()
        call.result(30)
    assert api.status()[1]["leases"] == 0


def test_waiter_whose_grant_replicas_lack_is_told_and_the_next_one_has_its_turn(world, pair, name):
    """Broken: the undone grant of a waiter leaves the queue without a head. (P6, P8)"""
    master, replica = pair
    pawld = world.pawld(master, fast())
    api = pawld.api()
    holder = api.must("acquire", name, ttl_ms=LONG_TTL)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(pawld.api().acquire, name, wait_ms=60_000, ttl_ms=LONG_TTL)
        until(lambda: api.inspect(name)[1]["waiters"] == 1, what="the first waits")
        freeze(replica)
        api.must("release", name, lease_id=holder["lease_id"])
        status, answer = first.result(30)
        assert (status, answer["error"]) == (503, "not_replicated")
        replica.sigcont()
        status, answer = pawld.api().acquire(name, wait_ms=30_000, ttl_ms=LONG_TTL)
    assert status == 200 and answer["token"] > holder["token"]
    assert api.inspect(name)[1]["waiters"] == 0


def test_one_wait_covers_many_grants(world, pair, name):
    """Broken: each grant pays for a WAIT of its own."""
    master, replica = pair
    pawld = world.pawld(master, fast("20s"))
    pawld.api().must("acquire", f"{name}/first")
    freeze(replica)
    with concurrent.futures.ThreadPoolExecutor(41) as pool:
        blocked = pool.submit(pawld.api().acquire, f"{name}/blocked", ttl_ms=LONG_TTL)
        until(lambda: master.info("clients")["blocked_clients"] == "1", what="a WAIT blocks")
        before = waits(master)
        calls = [pool.submit(pawld.api().acquire, f"{name}/{i}", ttl_ms=LONG_TTL) for i in range(40)]
        until(lambda: all(master.holds(f"{name}/{i}") for i in range(40)), what="all forty are granted in the master")
        always(lambda: not any(call.done() for call in calls), 0.3, "none is told")
        replica.sigcont()
        assert all(call.result(30)[1].get("replicas") == 1 for call in calls + [blocked])
    # the blocked one may be counted when it ends; the forty are covered by the rounds that follow
    assert waits(master) - before <= 6


def test_two_replicas_are_two(world, name):
    """Broken: one replica's word counts for two."""
    master, first, second = make_pair(world, replicas=2)
    api = world.pawld(master, fast(least=2)).api()
    assert api.must("acquire", f"{name}/both", ttl_ms=LONG_TTL)["replicas"] == 2
    freeze(second)
    assert api.acquire(name)[1]["error"] == "not_replicated"
    until(lambda: not master.holds(name), what="the grant is undone")
    assert first.command("PING") == "PONG"


def test_connection_for_waiting_may_be_lost(world, pair, name):
    """Broken: a call whose WAIT lost its connection is never answered, or is refused although the replicas have it. (P9)"""
    master, replica = pair
    pawld = world.pawld(master, fast("20s"))
    freeze(replica)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(pawld.api().acquire, name, ttl_ms=LONG_TTL)
        until(lambda: master.info("clients")["blocked_clients"] == "1", what="a WAIT blocks")
        listed = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in master.command("CLIENT", "LIST").splitlines()]
        master.command("CLIENT", "KILL", "ID", next(one["id"] for one in listed if "b" in one["flags"]))
        until(lambda: master.info("clients")["blocked_clients"] == "1", what="another WAIT blocks")
        replica.sigcont()
        status, answer = call.result(30)
    assert status == 200 and answer["replicas"] == 1


def test_scripts_may_be_flushed(world, pair, name):
    """Broken: after SCRIPT FLUSH nothing is confirmed any more."""
    master, _ = pair
    api = world.pawld(master, fast("10s")).api()
    for i in range(3):
        master.command("SCRIPT", "FLUSH", "SYNC")
        assert api.must("acquire", f"{name}/{i}")["replicas"] == 1


def test_grant_of_a_life_that_ended_is_not_told(world, pair, name):
    """Broken: the master dies without its data while a grant waits for replicas, and the grant is told as if it stood. (P1, P5)"""
    master, replica = pair
    pawld = world.pawld(master, fast("20s") + ["--recovery-window", "3s"])
    pawld.api().must("acquire", f"{name}/first")
    freeze(replica)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(pawld.api().acquire, name, ttl_ms=LONG_TTL)
        until(lambda: master.holds(name) and master.info("clients")["blocked_clients"] == "1", what="the grant waits")
        master.kill9()
        replica.kill9()
        master.start()
        status, answer = call.result(40)
    assert status == 503 and answer["error"] in ("recovering", "store_unavailable", "not_replicated")
    until(lambda: pawld.ready() and not master.holds(name), what="nothing is held")


def test_p1_deposed_master_neither_grants_nor_renews(world, name):
    """Broken: a node that is cut off together with the old master goes on granting and renewing there. (P1)"""
    group = world.group()
    old = group.master
    with_old = world.pawld(old, fast())  # it knows the old master alone
    grant = with_old.api().must("acquire", f"{name}/held", ttl_ms=LONG_TTL)
    group.cut_replication()
    # the old master is cut off from the rest, which goes on without it
    new = group.servers[1]
    for sentinel in group.sentinels:
        sentinel.kill9()
    new.command("REPLICAOF", "NO", "ONE")
    assert with_old.api().acquire(name)[1]["error"] == "not_replicated"
    assert with_old.api().renew(f"{name}/held", lease_id=grant["lease_id"])[1]["error"] == "not_replicated"
    until(lambda: not old.holds(name), what="the grant is undone")
    assert old.holds(f"{name}/held")


def test_p2_a_deposed_master_hands_out_lesser_tokens_than_the_new_one(world, name):
    """Broken: a node that does not know yet that its master is deposed hands out a token that a guard takes after one of the new master's. (P2)"""
    old, new = make_pair(world)
    with_old = world.pawld(old, ["--recovery-window", "3s"])
    first = with_old.api().must("acquire", f"{name}/first", ttl_ms=LONG_TTL)
    until(lambda: new.holds(f"{name}/first"), what="the replica has it")
    new.command("REPLICAOF", "NO", "ONE")
    with_new = world.pawld(new, ["--recovery-window", "3s"])
    later = with_new.api().must("acquire", f"{name}/l", ttl_ms=LONG_TTL)
    assert with_new.api().inspect(f"{name}/first")[1]["token"] == first["token"]
    for i in range(100):
        late = with_old.api().must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL)
        assert first["token"] < late["token"] < later["token"]
    assert with_old.api().must("acquire", f"{name}/l", ttl_ms=LONG_TTL)["token"] < later["token"], "two holders, and the guard knows the later one"


def test_dev_has_no_replicas():
    """Broken: --dev takes an option under which nothing could ever be granted."""
    code, _, problem = run("--dev", "--min-replicas", "1")
    assert code == 2 and "--min-replicas" in problem


def test_p3_p8_a_release_that_is_answered_before_the_renewal_it_follows(world, pair, name):
    """Broken: both outlast a connection, the renewal then waits for replicas longer than the release takes, and its lease is taken in after it was released."""
    master, replica = pair
    proxy = world.proxy(master.address)
    pawld = world.pawld(proxy.redis_url, [*fast("2s"), "--store-timeout", "20s"])
    api = pawld.api()
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    numbers = api.metrics
    freeze(replica)
    renewal, crowd, release = pawld.conn(60), pawld.conn(60), pawld.conn(60)
    renewal.send_request("POST", lock_path(name, "renew"), {"lease_id": grant["lease_id"]})
    until(lambda: numbers()["pawl_store_pending"] == 1, what="it is on its way, or waits for the replica")
    proxy.stall_up = True
    crowd.send_request("POST", "/v1/renew", {"leases": [{"name": f"{name}/{i}", "lease_id": new_id()} for i in range(256)]})  # as many as may be on their way
    until(lambda: numbers()["pawl_store_pending"] >= 257, what="the way is full")
    release.send_request("POST", lock_path(name, "release"), {"lease_id": grant["lease_id"]})
    until(lambda: numbers()["pawl_store_pending"] >= 258, what="the release is asked too")
    assert numbers()["pawl_store_waiting"] >= 1, "it waits; and one of the crowd does if the renewal is on its way"
    proxy.cut()
    proxy.stall_up = False
    assert release.read_reply().status == 200
    assert renewal.read_reply().status == 503
    assert crowd.read_reply().status == 200
    assert numbers()["pawl_leases"] == 0, "the released lease is vouched for"
    assert not master.holds(name)
    replica.sigcont()
