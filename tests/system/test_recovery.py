"""P3: what becomes of leases when Redis loses its data under nodes that live.

Each test loses the data in one way and asks: is every live lease back before anything new is granted, under its old token, and is nothing back that
was given up?
"""

from pawltest.fixtures import lose_by_kill
from pawltest.wait import until
from pawltest.waiters import Waiter, new_id

WINDOW = ["--recovery-window", "3s"]
LONG_TTL = 600_000


def renew_when_possible(api, name, lease_id, deadline_s=20):
    """The first answer to a renew that is no 503."""
    answers = []

    def answered():
        answers.append(api.renew(name, lease_id=lease_id, ttl_ms=LONG_TTL))
        return answers[-1][0] != 503

    until(answered, deadline_s, "renew is answered")
    return answers[-1]


def wait_for_loss(pawld, attaches=2):
    until(lambda: pawld.api().metrics()["pawl_store_attaches_total"] >= attaches, 20, "it has attached to the new life")


def test_p3_leases_are_put_back_before_anything_is_granted(world, redis, name, lose):
    """Broken: after the loss a second client is granted what the first one holds. (P1, P2, P3)"""
    a, b = world.pawld(redis, WINDOW), world.pawld(redis, WINDOW)
    grants = {f"{name}/{i}": (a if i % 2 else b).api().must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL, owner=f"o{i}") for i in range(40)}
    lose(redis)
    api = b.api()
    told = set()

    def refused(lock):
        status, answer = api.acquire(lock, ttl_ms=LONG_TTL)
        told.add(answer.get("error"))
        assert status != 200, f"{lock} is granted twice"
        return answer["error"] == "held"

    for lock, grant in grants.items():
        until(lambda: refused(lock), 30, f"{lock} is held again")
        shown = api.inspect(lock)[1]
        assert (shown["token"], shown["owner"]) == (grant["token"], grant["owner"])
    assert "recovering" in told
    for lock, grant in grants.items():
        assert api.renew(lock, lease_id=grant["lease_id"])[1]["token"] == grant["token"]
        assert api.check(lock, token=grant["token"])[0] == 200
    newest = api.must("acquire", f"{name}/new")
    assert newest["token"] > max(grant["token"] for grant in grants.values())
    assert sum(node.api().metrics()["pawl_leases_put_back_total"] for node in (a, b)) >= 40


def test_p3_a_renewal_works_as_soon_as_redis_is_back(world, redis, name):
    """Broken: holders are shut out until the window is over, and their leases run out meanwhile. (P3)"""
    pawld = world.pawld(redis, ["--recovery-window", "8s"])
    grant = pawld.api().must("acquire", name, ttl_ms=LONG_TTL)
    lose_by_kill(redis)
    wait_for_loss(pawld)
    status, renewed = renew_when_possible(pawld.api(), name, grant["lease_id"])
    assert status == 200 and renewed["token"] == grant["token"]
    assert pawld.api().readyz() == 503, "and that was within the window"


def test_p3_twice_in_one_window(world, redis, name):
    """Broken: what was put back once is not put back at the next loss. (P3, H15)"""
    pawld = world.pawld(redis, WINDOW)
    api = pawld.api()
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    for loss in range(3):
        lose_by_kill(redis)
        wait_for_loss(pawld, loss + 2)
        until(lambda: redis.holds(name), 20, "it is back")
    pawld.wait_ready()
    assert api.inspect(name)[1]["token"] == grant["token"]
    assert api.acquire(name)[1]["error"] == "held"


def test_p3_a_lease_that_a_repeat_took_over_is_vouched_for_though_its_client_left(world, redis, name):
    """Broken: a client holds by what one node told it, repeats the acquire at another and leaves before the answer; the first node forgets the lease, the other
    never knew it, and with the next loss of the data it is gone. (P1, P7)"""
    proxy = world.proxy(redis.address)
    a, b = world.pawld(redis, WINDOW), world.pawld(proxy.redis_url, WINDOW)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    before = redis.command("GET", redis.lock_key(name))
    proxy.stall_answers = True
    waiter = Waiter(b.address, name, wait_ms=30_000, lease_id=grant["lease_id"])
    until(lambda: redis.command("GET", redis.lock_key(name)) != before, 20, "the repeat has run")
    waiter.leave("reset")
    until(lambda: b.api().status()[1]["waiters"] == 0, 20, "its leaving is noticed")
    proxy.stall_answers = False
    until(lambda: a.api().status()[1]["leases"] == 0, 20, "it is the other node's matter")
    until(lambda: b.api().status()[1]["leases"] == 1, 20, "which knows")
    redis.command("FLUSHALL")
    for node in (a, b):
        wait_for_loss(node)
        node.wait_ready()
    assert a.api().acquire(name)[1]["error"] == "held"
    assert a.api().must("renew", name, lease_id=grant["lease_id"])["token"] == grant["token"]


def test_h7_a_released_lease_does_not_come_back(world, redis, name, lose):
    """Broken: node B releases what node A granted; after the loss A puts it back and the lock is blocked for the rest of its ttl. (H6, H7)"""
    a, b = world.pawld(redis, WINDOW), world.pawld(redis, WINDOW)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    other = a.api().must("acquire", f"{name}/broken", ttl_ms=LONG_TTL)
    b.api().must("release", name, lease_id=grant["lease_id"])
    assert b.api().brk(f"{name}/broken", reason="test")[0] == 200
    until(lambda: a.api().metrics()["pawl_leases"] == 0, 20, "node A has heard")
    lose(redis)
    wait_for_loss(b)
    until(lambda: b.api().acquire(name)[0] == 200, 20, "it can be taken")
    status, answer = a.api().renew(f"{name}/broken", lease_id=other["lease_id"])
    assert status == 410, answer


def test_h7_a_release_in_the_window_leaves_a_tombstone(world, redis, name):
    """Broken: a lease released while the window is open is put back by a node with an older entry. (H7)"""
    a, b = world.pawld(redis, ["--recovery-window", "8s"]), world.pawld(redis, ["--recovery-window", "8s"])
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    assert b.api().renew(name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)[0] == 200
    until(lambda: a.api().metrics()["pawl_leases"] == 0, 20, "it is B's now")
    redis.command("FLUSHALL")
    wait_for_loss(a)

    def released():
        status, answer = b.api().release(name, lease_id=grant["lease_id"])
        assert status in (200, 503), answer
        return status == 200

    until(released, 20, "released in the window")
    assert redis.command("GET", redis.lock_key(name)) == f"released {grant['token']}"
    for node in (a, b):
        node.wait_ready()
    taken = a.api().must("acquire", name)
    assert taken["token"] > grant["token"]


# The sum behind the window has to leave room for a store timeout that no stalled answer of these tests reaches.
PATIENT = ["--store-timeout", "3s", "--recovery-window", "6s"]


def leases(pawld):
    return pawld.api().metrics()["pawl_leases"]


def test_p3_h7_a_message_that_was_overtaken_takes_no_later_renewal_away(world, redis, name):
    """Broken: a lease that is renewed through A, B and A within the delay of one message is in no node's table, and is not put back. (P3, H7)"""
    proxy = world.proxy(redis.address)
    a, b = world.pawld(proxy.redis_url, PATIENT), world.pawld(redis, PATIENT)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    mark = a.api().must("acquire", f"{name}/mark", ttl_ms=LONG_TTL)
    proxy.stall_messages = True
    b.api().must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    a.api().must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
    b.api().must("release", f"{name}/mark", lease_id=mark["lease_id"])
    assert leases(a) == 2, "no message has come through"
    proxy.stall_messages = False
    until(lambda: leases(a) < 2, 20, "A hears that the later of the two locks is free, so it has heard of the first before")
    redis.command("FLUSHALL")
    until(lambda: redis.holds(name), 20, "the lease is put back")
    assert renew_when_possible(a.api(), name, grant["lease_id"])[1]["token"] == grant["token"]


def test_h7_a_message_that_overtook_an_answer_is_heeded(world, redis, name):
    """Broken: A reads that B renewed the lease, and after that the answer to its own earlier renewal, and goes on vouching for it: released through B it
    comes back with the next loss. (H7)"""
    proxy = world.proxy(redis.address)
    a, b = world.pawld(proxy.redis_url, PATIENT), world.pawld(redis, PATIENT)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    mark = a.api().must("acquire", f"{name}/mark", ttl_ms=LONG_TTL)
    before = redis.command("GET", redis.lock_key(name))
    proxy.stall_answers = True
    with a.conn() as conn:
        conn.send_request("POST", f"/v1/locks/{name}/renew", {"lease_id": grant["lease_id"], "ttl_ms": LONG_TTL})
        until(lambda: redis.command("GET", redis.lock_key(name)) != before, 20, "A's renewal has run")
        b.api().must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
        b.api().must("release", f"{name}/mark", lease_id=mark["lease_id"])
        until(lambda: leases(a) == 0, 20, "A has heard")
        proxy.stall_answers = False
        assert conn.read_reply().status == 200
    assert leases(a) == 0
    b.api().must("release", name, lease_id=grant["lease_id"])
    redis.command("FLUSHALL")
    until(lambda: b.api().acquire(name)[0] == 200, 30, "nothing of it comes back")


def test_h7_a_release_gives_up_what_a_renewal_on_its_way_confirms(world, redis, name):
    """Broken: the answer to a renewal that was sent before the release comes after it, and the node vouches for a lease that was released. (H7) The release waits
    for that answer, and the node has given the lease up already."""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, PATIENT)
    grant = pawld.api().must("acquire", name, ttl_ms=LONG_TTL)
    before = redis.command("GET", redis.lock_key(name))
    proxy.stall_answers = True
    with pawld.conn() as renewing, pawld.conn() as releasing:
        renewing.send_request("POST", f"/v1/locks/{name}/renew", {"lease_id": grant["lease_id"], "ttl_ms": LONG_TTL})
        until(lambda: redis.command("GET", redis.lock_key(name)) != before, 20, "the renewal has run")
        releasing.send_request("POST", f"/v1/locks/{name}/release", {"lease_id": grant["lease_id"]})
        until(lambda: pawld.api().metrics()["pawl_store_waiting"] == 1, 20, "the release stands behind the renewal")
        assert redis.holds(name) and leases(pawld) == 0
        proxy.stall_answers = False
        assert (renewing.read_reply().status, releasing.read_reply().status) == (200, 200)
    assert leases(pawld) == 0 and not redis.holds(name)


def test_p3_a_node_that_comes_late_drops_what_is_gone(world, redis, name):
    """Broken: a node that was cut off over the window goes on vouching for leases that others have taken since. (P4)"""
    proxy = world.proxy(redis.address)
    late, timely = world.pawld(proxy.redis_url, WINDOW), world.pawld(redis, WINDOW)
    grant = late.api().must("acquire", name, ttl_ms=LONG_TTL)
    proxy.slam = True
    proxy.cut()
    late.wait_not_ready()
    redis.command("FLUSHALL")
    until(lambda: timely.api().acquire(name, ttl_ms=LONG_TTL)[0] == 200, 30, "the window closed without the late one")
    proxy.slam = False
    late.wait_ready()
    until(lambda: late.api().metrics()["pawl_leases"] == 0, 20, "dropped")
    assert late.api().metrics()["pawl_leases_gone_total"] >= 1
    assert late.log("lease_gone")
    status, answer = late.api().renew(name, lease_id=grant["lease_id"])
    assert (status, answer["error"]) == (410, "lease_lost")
    assert timely.api().inspect(name)[1]["held"]


def test_p2_h5_a_repeat_after_a_restart_with_data_gets_a_token_of_the_new_life(world, name):
    """Broken: a lease of an earlier life, which may be stale, is confirmed under its old token. (P2, H5)"""
    redis = world.redis(options={"appendonly": "yes", "appendfsync": "always"})
    pawld = world.pawld(redis, WINDOW)
    lease = new_id()
    first = pawld.api().must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
    redis.kill9()
    redis.start()
    wait_for_loss(pawld)
    pawld.wait_ready()
    again = pawld.api().must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
    assert again["token"] > first["token"]
    assert pawld.api().check(name, token=again["token"])[0] == 200


def test_p3_in_the_window_an_acquire_with_its_own_lease_id_is_not_answered_200(world, redis, name):
    """Broken: while copies of different ages may come back, a repeat is told that it holds. (H5)"""
    pawld = world.pawld(redis, ["--recovery-window", "8s"])
    lease = new_id()
    grant = pawld.api().must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
    redis.command("FLUSHALL")
    wait_for_loss(pawld)
    status, answer = pawld.api().acquire(name, lease_id=lease, ttl_ms=LONG_TTL)
    assert (status, answer["error"], answer["lease_id"]) == (503, "recovering", lease)
    assert pawld.api().check(name, token=grant["token"] + 5)[1]["error"] == "recovering"
    assert pawld.api().brk(f"{name}/x", reason="test")[1]["error"] == "recovering"
    assert pawld.api().inspect(f"{name}/x")[1]["recovering"] is True


def test_p6_waiters_survive_the_loss_in_their_order(world, redis, name, lose):
    """Broken: after a loss newcomers pass those who waited before it. (P3, P6)"""
    a, b = world.pawld(redis, WINDOW), world.pawld(redis, WINDOW)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    old = []
    for i in range(6):
        old.append(Waiter((a, b)[i % 2].address, name, 60_000))
        until(lambda: a.api().inspect(name)[1]["waiters"] == i + 1, 20, "in line")
    lose(redis)
    wait_for_loss(a)
    for node in (a, b):
        node.wait_ready()
    until(lambda: a.api().inspect(name)[1]["waiters"] == 6, 20, "all are back in line")
    late = Waiter(a.address, name, 60_000)
    until(lambda: a.api().inspect(name)[1]["waiters"] == 7, 20, "a newcomer behind them")
    a.api().must("release", name, lease_id=grant["lease_id"])
    tokens = []
    for waiter in [*old, late]:
        answer = waiter.granted(20)
        tokens.append(answer["token"])
        waiter.release()
    assert tokens == sorted(tokens) and tokens[0] > grant["token"]
