"""How many, and what happens to one more: C11 and P9."""

import time

from pawltest.http import request_bytes
from pawltest.wait import until


def test_p9_one_connection_too_many_gets_429(start_net_probe):
    probe = start_net_probe(max_connections=5)
    probe.counts()
    held = [probe.connect() for _ in range(4)]
    probe.wait_counts(connections=5)
    with probe.connect() as extra:
        extra.send(request_bytes("GET", "/a"))
        reply = extra.read_reply()
        assert reply.status == 429 and reply.json()["error"] == "too_many_connections" and reply.headers["connection"] == "close"
        assert extra.at_eof()
    assert probe.counts()["refused"] == 1 and probe.counts()["connections"] == 5
    for conn in held:
        assert conn.request("GET", "/a").status == 200  # those who were there are served
    held.pop().close()
    probe.wait_counts(connections=4)
    with probe.connect() as conn:
        assert conn.request("GET", "/a").status == 200


def test_p9_a_crowd_beyond_the_limit_is_bounded(start_probe):
    probe = start_probe(max_connections=5)
    probe.counts()
    held = [probe.connect() for _ in range(4)]
    probe.wait_counts(connections=5)
    crowd = [probe.connect() for _ in range(300)]
    until(lambda: probe.counts()["refused"] == 300, what="all refused")
    for conn in crowd:
        assert conn.read_reply().status == 429
        assert conn.at_eof()
    assert held[0].request("GET", "/a").status == 200
    for conn in crowd + held:
        conn.close()


def test_c11_64_descriptors_and_200_connections(start_probe):
    probe = start_probe(descriptors=64)
    first = probe.connect()
    assert first.request("GET", "/a").status == 200
    probe.counts()
    crowd = [probe.connect() for _ in range(200)]
    until(lambda: (lambda c: c["refused"] + c["accepted"] >= 202)(probe.counts()), what="all seen")
    cpu, began = probe.cpu_s(), time.monotonic()
    while time.monotonic() - began < 2:
        assert first.request("GET", "/a").status == 200  # renewals on open connections go on
        time.sleep(0.05)
    assert probe.cpu_s() - cpu < 0.2 * (time.monotonic() - began)
    assert probe.log().count("\n") < 10
    assert first.request("GET", "/hold").body == b"held\n"  # descriptors were kept back for the rest of the process ...
    assert first.request("GET", "/unhold").body == b"free\n"
    for conn in crowd:
        conn.close()
    until(lambda: probe.counts()["connections"] == 2, what="the crowd has left")
    with probe.connect() as conn:
        assert conn.request("GET", "/a").status == 200
    first.close()


def test_c11_no_descriptor_left_at_all(start_probe):
    """Something else in the process took them all: accept itself fails, and those who come are told with the one in reserve."""
    probe = start_probe(descriptors=64)
    first = probe.connect()
    assert first.request("GET", "/hold").body == b"held\n"
    cpu, began = probe.cpu_s(), time.monotonic()
    crowd = [probe.connect() for _ in range(100)]
    for conn in crowd:
        reply = conn.read_reply()
        assert reply.status == 429 and reply.json()["error"] == "too_many_connections"
        assert conn.at_eof()
        conn.close()
    while time.monotonic() - began < 2:
        assert first.request("GET", "/a").status == 200
        time.sleep(0.05)
    assert probe.cpu_s() - cpu < 0.2 * (time.monotonic() - began)
    assert 1 <= probe.log().count("accept_failed") < 10 and probe.log().count("\n") < 10
    assert first.request("GET", "/unhold").body == b"free\n"
    until(lambda: serves(probe), what="service again")
    assert probe.counts()["accept_errors"] >= 1
    first.close()


def serves(probe):
    with probe.connect() as conn:
        return conn.request("GET", "/a").status == 200


def test_an_idle_front_is_idle(start_net_probe):
    probe = start_net_probe()
    conns = [probe.connect() for _ in range(100)]
    for conn in conns:
        conn.send(request_bytes("GET", "/park"))
    probe.wait_counts(parked=100)
    cpu, began = probe.cpu_s(), time.monotonic()
    for conn in conns:
        conn.half_close() if conn is conns[0] else None
    until(lambda: time.monotonic() - began > 2, what="two seconds of watching")
    assert probe.cpu_s() - cpu < 0.2
    for conn in conns:
        conn.close()
