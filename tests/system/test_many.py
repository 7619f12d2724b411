"""The calls about many leases at once: POST /v1/renew and POST /v1/release-all."""

import time

import pytest

from pawltest.auth import AuthFile
from pawltest.http import Conn
from pawltest.wait import until
from pawltest.waiters import Waiter, new_id, standing

LONG_TTL = 600_000


def renew(api, leases, **more):
    return api.call("POST", "/v1/renew", {"leases": leases, **more})[:2]


def release_all(api, owner):
    status, answer, _ = api.call("POST", "/v1/release-all", {"owner": owner})
    assert status == 200, answer
    return answer


def lease(grant, **more):
    return {"name": grant["name"], "lease_id": grant["lease_id"], **more}


def test_a_list_is_renewed_each_with_an_answer_of_its_own_in_order(broker, name):
    """Broken: one that is lost spoils the others, or the answers' order; a time of its own is not taken; a lease that stands twice is renewed once. (P4, P5)"""
    api = broker.api
    grants = [api.must("acquire", f"{name}/{i}", ttl_ms=5000, owner=f"o{i}") for i in range(5)]
    api.must("release", grants[2]["name"], lease_id=grants[2]["lease_id"])
    asked = [lease(grants[0]), lease(grants[1], ttl_ms=90_000), lease(grants[2]), {"name": grants[3]["name"], "lease_id": new_id()}, lease(grants[4]),
             lease(grants[0], ttl_ms=1000)]
    status, answer = renew(api, asked, ttl_ms=60_000)
    assert status == 200 and (answer["renewed"], answer["failed"]) == (4, 2)
    assert [(item["name"], item["lease_id"]) for item in answer["leases"]] == [(item["name"], item["lease_id"]) for item in asked]
    for i, top in ((0, 60_000), (1, 90_000), (4, 60_000), (5, 1000)):
        item, grant = answer["leases"][i], grants[i % 5]
        assert (item["token"], item["owner"]) == (grant["token"], grant["owner"]) and top - 900 < item["ttl_ms"] <= top, item
    for i in (2, 3):
        assert answer["leases"][i]["error"] == "lease_lost" and "token" not in answer["leases"][i]
    assert api.inspect(grants[0]["name"])[1]["ttl_ms"] <= 1000
    assert api.inspect(grants[3]["name"])[1]["ttl_ms"] <= 5000  # nor did the stranger change anything


def test_many_renewals_take_one_round_trip(world, redis, name):
    """Broken: each lease waits for the answer about the one before it; or 256 at once are too many. (P9)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url)
    api = pawld.api()
    grants = [api.must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL) for i in range(256)]
    proxy.delay_up_s = proxy.delay_down_s = 0.1
    begun = time.monotonic()
    status, answer = renew(api, [lease(grant) for grant in grants], ttl_ms=LONG_TTL)
    took = time.monotonic() - begun
    assert status == 200 and answer["renewed"] == 256
    assert 0.2 <= took < 20, took  # 256 trips one after the other would be 51 s
    status, answer = renew(api, [lease(grant) for grant in grants] + [lease(grants[0])])
    assert status == 400 and answer["message"] == "leases: at most 256 in one call"


def test_a_list_with_a_fault_renews_nothing(broker, name):
    """Broken: those before the fault are renewed all the same."""
    api = broker.api
    grant = api.must("acquire", name, ttl_ms=5000)
    for body, message in (({}, "leases: required"), ({"leases": []}, "leases: required"), ({"leases": [lease(grant), {}]}, "leases[1].name: required"),
                          ({"leases": [lease(grant), lease(grant, ttl_ms=0)]}, "leases[1].ttl_ms: must be from"),
                          ({"leases": [lease(grant)], "ttl_ms": 10**12}, "leases[0].ttl_ms: must be from"),
                          ({"leases": [lease(grant)], "wait_ms": 1}, "this call takes leases")):
        status, answer, _ = api.call("POST", "/v1/renew", body)
        assert (status, answer["error"]) == (400, "bad_request") and answer["message"].startswith(message), answer
    assert api.call("POST", "/v1/renew?ttl=60s", {"leases": [lease(grant)]})[0] == 400
    status, _answer, reply = api.call("GET", "/v1/renew")
    assert status == 405 and reply.headers["allow"] == "POST"
    assert api.inspect(name)[1]["ttl_ms"] <= 5000


def test_a_client_that_leaves_while_its_list_is_renewed(world, redis, name):
    """Broken: the answers to its renewals go to a call that is no more. (P8)"""
    pawld = world.pawld(redis)
    api = pawld.api()
    grants = [api.must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL) for i in range(20)]
    before = api.status()[1]["connections"]
    redis.sigstop()
    conn = Conn(pawld.address)
    conn.send_request("POST", "/v1/renew", {"leases": [lease(grant) for grant in grants], "ttl_ms": LONG_TTL})
    until(lambda: api.status()[1]["store_pending"] >= 20, 20, "they are on their way")
    conn.reset()
    until(lambda: api.status()[1]["connections"] == before, 20, "it has been noticed")
    redis.sigcont()
    until(lambda: api.status()[1]["store_pending"] <= 1, 20, "they are over")
    pawld.wait_ready()
    assert all(renew(api, [lease(grant)])[1]["renewed"] == 1 for grant in grants)


def test_renewals_carry_the_bound(broker, name):
    """Broken: a list is a way past max_hold. (P11)"""
    grant = broker.api.must("acquire", name, ttl_ms=1000, max_hold_ms=3000)
    item = renew(broker.api, [lease(grant)], ttl_ms=60_000)[1]["leases"][0]
    assert item["ttl_ms"] <= item["max_hold_left_ms"] <= 3000


@pytest.fixture
def auth(world):
    return AuthFile(world.folder())


def test_p4_the_list_obeys_the_rules_lock_by_lock(world, redis, auth, name):
    """Broken: a list is a way around the prefixes of a rule."""
    mine, all_of_it = auth.rule("mine", [f"{name}/mine/"], ["acquire"]), auth.rule("all", [""], ["admin"])
    reader = auth.rule("reader", [""], ["read"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    admin = pawld.api(token=all_of_it)
    grants = [admin.must("acquire", f"{name}/{part}/x", ttl_ms=5000) for part in ("mine", "theirs")]
    status, answer = renew(pawld.api(token=mine), [lease(grant) for grant in grants], ttl_ms=60_000)
    assert status == 200 and [item.get("error") for item in answer["leases"]] == [None, "forbidden"]
    assert admin.inspect(grants[1]["name"])[1]["ttl_ms"] <= 5000
    assert renew(pawld.api(token=reader), [lease(grants[0])])[0] == 403
    assert pawld.api(token=reader).call("POST", "/v1/release-all", {"owner": "x"})[0] == 403
    assert renew(pawld.api(), [lease(grants[0])])[0] == 401


def test_release_all_gives_up_what_an_owner_holds_here_and_nothing_else(world, redis, name):
    """Broken: it releases another owner's lease, one that is over, or leaves one; who waits is not told; it leaves a delay. (P4, P10)"""
    a, b = world.pawld(redis), world.pawld(redis)
    grants = [a.api().must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL, owner="job-7", lock_delay_ms=60_000) for i in range(5)]
    other = a.api().must("acquire", f"{name}/other", ttl_ms=LONG_TTL, owner="job-70")
    elsewhere = b.api().must("acquire", f"{name}/elsewhere", ttl_ms=LONG_TTL, owner="job-7")
    assert b.api().renew(grants[4]["name"], lease_id=grants[4]["lease_id"], ttl_ms=LONG_TTL)[0] == 200  # from here on it is that node's
    until(lambda: a.api().metrics()["pawl_leases"] == 5, 20, "node A has heard")
    waiter = Waiter(b.address, grants[0]["name"], wait_ms=30_000)
    standing(a.api(), grants[0]["name"], 1)
    answer = release_all(a.api(), "job-7")
    assert (answer["released"], answer["failed"], answer["more"], answer["failures"]) == (4, 0, False, [])
    assert sorted(answer["names"]) == sorted(grant["name"] for grant in grants[:4])
    waiter.granted()
    for grant in grants[1:4]:
        assert a.api().acquire(grant["name"], owner="next")[0] == 200
    for grant in (other, elsewhere, grants[4]):
        assert a.api().inspect(grant["name"])[1]["token"] == grant["token"]
    assert sorted(release_all(b.api(), "job-7")["names"]) == sorted([grants[4]["name"], elsewhere["name"]])
    assert release_all(b.api(), "job-7") == {"released": 0, "failed": 0, "more": False, "names": [], "failures": []}
    for body in ({}, {"owner": ""}, {"owner": "x", "ttl_ms": 5}):
        assert a.api().call("POST", "/v1/release-all", body)[0] == 400
    assert a.api().call("POST", "/v1/release-all?owner=nobody")[0] == 200
    waiter.close()


def test_p4_release_all_is_for_the_leases_that_the_callers_own_rule_was_granted(world, redis, auth, name):
    """Broken: whoever calls itself by another's name can release what that one holds."""
    one, two = (auth.rule(rule, [name], ["acquire"]) for rule in ("one", "two"))
    admin = auth.rule("ops", [""], ["admin"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    mine = pawld.api(token=one).must("acquire", f"{name}/1", ttl_ms=LONG_TTL, owner="job")
    unnamed = pawld.api(token=one).must("acquire", f"{name}/2", ttl_ms=LONG_TTL)  # the rule's name
    theirs = pawld.api(token=two).must("acquire", f"{name}/3", ttl_ms=LONG_TTL, owner="job")
    for token in (two, admin):
        assert release_all(pawld.api(token=token), "one")["released"] == 0
    assert release_all(pawld.api(token=admin), "job")["released"] == 0
    assert release_all(pawld.api(token=one), "job")["names"] == [mine["name"]]
    assert pawld.api(token=admin).inspect(theirs["name"])[1]["token"] == theirs["token"]
    assert release_all(pawld.api(token=one), "one")["names"] == [unnamed["name"]]


def test_p9_release_all_has_a_bound_and_says_that_there_is_more(world, redis, name):
    """Broken: one call for a hundred thousand leases holds up everybody; or what it left is not told."""
    pawld = world.pawld(redis)
    with Conn(pawld.address) as conn:
        for begin in range(0, 2100, 100):
            for i in range(begin, begin + 100):
                conn.send_request("POST", f"/v1/locks/{name}/{i}/acquire", {"ttl_ms": LONG_TTL, "owner": "crowd"})
            for _ in range(100):
                assert conn.read_reply().status == 200
    told = [release_all(pawld.api(), "crowd") for _ in range(3)]
    assert [(answer["released"], answer["more"]) for answer in told] == [(1000, True), (1000, True), (100, False)]
    assert len({held for answer in told for held in answer["names"]}) == 2100
    assert pawld.api().status()[1]["leases"] == 0


def test_release_all_tells_of_what_it_could_not_do(world, redis, name):
    """Broken: a store that does not answer counts as released."""
    pawld = world.pawld(redis, ["--store-timeout", "300ms"])
    pawld.api().must("acquire", name, ttl_ms=LONG_TTL, owner="o")
    redis.sigstop()
    answer = release_all(pawld.api(), "o")
    redis.sigcont()
    assert (answer["released"], answer["failed"], answer["names"]) == (0, 1, [])
    assert answer["failures"][0]["name"] == name and answer["failures"][0]["error"] == "store_unavailable"
