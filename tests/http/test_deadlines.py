"""Deadlines are totals: a byte now and then buys nothing (C31)."""

import time

import pytest
from pawltest.http import request_bytes
from pawltest.wait import until


def test_c31_a_slow_head_gets_408(start_net_probe):
    probe = start_net_probe(head_timeout=400)
    with probe.connect() as conn:
        began = time.monotonic()
        drip = iter(b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 10_000)

        def answered():
            conn.sock.setblocking(False)
            try:
                conn.sock.send(bytes([next(drip)]))
                conn.buffer += conn.sock.recv(1)
            except BlockingIOError:
                pass
            return conn.buffer

        until(answered, what="an answer to a slow sender")
        assert 0.4 <= time.monotonic() - began < 10
        conn.sock.settimeout(30)
        reply = conn.read_reply()
        assert reply.status == 408 and reply.json()["error"] == "timeout" and reply.headers["connection"] == "close"
        assert conn.at_eof()
        assert probe.counts()["timeouts"] == 1


def test_c31_a_body_that_does_not_come_gets_408(start_net_probe):
    probe = start_net_probe(body_timeout=300, head_timeout=60_000)
    conns = [probe.connect() for _ in range(50)]
    for conn in conns:
        conn.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n0123456789")
    for conn in conns:
        reply = conn.read_reply()
        assert reply.status == 408 and reply.json()["error"] == "timeout"
        conn.close()
    assert probe.wait_counts(connections=1)["timeouts"] == 50


def test_c31_a_chunked_body_that_does_not_end_gets_408(start_net_probe):
    probe = start_net_probe(body_timeout=300)
    with probe.connect() as conn:
        conn.send(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert conn.read_reply().status == 408 and conn.at_eof()


def test_c31_others_are_served_meanwhile_and_waiting_is_not_limited(start_net_probe):
    probe = start_net_probe(head_timeout=1000, body_timeout=300, idle_timeout=60_000, stuck_timeout=1000)
    slow = [probe.connect() for _ in range(100)]
    with probe.connect() as parked:
        parked.send(request_bytes("GET", "/park"))
        for conn in slow:
            conn.send(b"GET")
        until(lambda: probe.counts()["timeouts"] == 100, 20, "all slow ones timed out")
        began = time.monotonic()
        probe.counts()
        assert time.monotonic() - began < 10
        assert probe.wake() == 1 and parked.read_reply().body == b"woken\n"
    for conn in slow:
        conn.close()


def test_an_idle_connection_is_closed_without_a_word(start_net_probe):
    probe = start_net_probe(idle_timeout=300)
    with probe.connect() as fresh, probe.connect() as used:
        used.request("GET", "/a")
        began = time.monotonic()
        assert used.at_eof() and fresh.at_eof()
        assert time.monotonic() - began >= 0.25


def test_no_deadline_while_the_service_thinks(start_net_probe):
    probe = start_net_probe(head_timeout=100, body_timeout=100, idle_timeout=100, stuck_timeout=100)
    with probe.connect() as conn:
        conn.send(request_bytes("GET", "/late?800"))
        assert conn.read_reply().body == b"late\n"


@pytest.mark.parametrize("size", [100, 100_000_000])
def test_c33_a_refused_body_does_not_eat_the_answer(probe, size):
    """The client goes on sending what is refused; the answer must not be lost to a reset."""
    with probe.connect() as conn:
        conn.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n")
        block, sent = b"x" * 65_536, 0
        while sent < size:
            try:
                sent += conn.sock.send(block[: size - sent])
            except (BrokenPipeError, ConnectionResetError):
                break  # after the time that a refused client has; the answer is there since long
            if sent > 4_000_000:
                break
        reply = conn.read_reply()
        assert reply.status == 413 and reply.json()["error"] == "too_large"


def test_p9_draining_after_a_refusal_ends(probe):
    with probe.connect() as conn:
        conn.send(b"GARBAGE\r\n")
        assert conn.read_reply().status == 400
        began = time.monotonic()
        probe.wait_counts(connections=1, deadline_s=30)  # though this client never closes
        assert time.monotonic() - began < 20
