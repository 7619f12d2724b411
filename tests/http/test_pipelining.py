"""Requests behind one another: in order, however many, on a stack that does not grow."""

import pytest
from pawltest.http import request_bytes


def numbered(count, method=lambda i: "GET"):
    return b"".join(request_bytes(method(i), f"/n/{i}") for i in range(count))


def check_numbered(conn, count, method=lambda i: "GET"):
    for i in range(count):
        head = method(i) == "HEAD"
        reply = conn.read_reply(head=head)
        assert reply.status == 200
        assert head or reply.body.split(b"\n")[0] == f"{method(i)} /n/{i}".encode()


def test_a_thousand_in_one_go(probe_by_kind):
    with probe_by_kind.connect() as conn:
        conn.send(numbered(1000))
        check_numbered(conn, 1000)
        conn.request("GET", "/still-here")


def test_c45_a_thousand_and_a_half_close(probe_by_kind):
    with probe_by_kind.connect() as conn:
        conn.send(numbered(1000))
        conn.half_close()
        check_numbered(conn, 1000)
        assert conn.at_eof()
    counts = probe_by_kind.wait_counts(connections=1, pending=0)
    assert counts["delivered"] + counts["later_delivered"] == 1000 and counts["lost"] + counts["later_lost"] == 0


def test_c12_a_thousand_with_head_between(probe):
    def method(i):
        return "HEAD" if i % 3 == 1 else "GET"

    with probe.connect() as conn:
        conn.send(numbered(1000, method))
        check_numbered(conn, 1000, method)


def test_in_order_behind_late_and_parked_ones(probe_by_kind):
    probe = probe_by_kind
    with probe.connect() as conn:
        conn.send(request_bytes("GET", "/late?50") + request_bytes("GET", "/a") + request_bytes("GET", "/park") + request_bytes("GET", "/b") + request_bytes("GET", "/late?1"))
        assert conn.read_reply().body == b"late\n"
        assert conn.read_reply().body.startswith(b"GET /a\n")
        probe.wait_counts(parked=1)
        probe.wake()
        assert conn.read_reply().body == b"woken\n"
        assert conn.read_reply().body.startswith(b"GET /b\n")
        assert conn.read_reply().body == b"late\n"


def test_c01_a_second_request_while_one_is_parked(probe):
    """Both in one segment, one after the other, and half of the second."""
    for second in (request_bytes("GET", "/b"), request_bytes("GET", "/b")[:20]):
        for together in (True, False):
            with probe.connect() as conn:
                conn.send(request_bytes("GET", "/park") + (second if together else b""))
                probe.wait_counts(parked=1)
                if not together:
                    conn.send(second)
                probe.wake()
                assert conn.read_reply().body == b"woken\n"
                conn.send(request_bytes("GET", "/b")[len(second):])
                assert conn.read_reply().body.startswith(b"GET /b\n")
    probe.wait_counts(connections=1, parked=0, gone=0)


def test_more_than_the_bound_behind_a_short_call_waits_in_the_kernel(probe):
    """P9: 64 KiB are read ahead, the rest when there is room; nothing is lost."""
    body = b"b" * 60_000
    with probe.connect() as conn:
        conn.send(request_bytes("GET", "/late?100") + request_bytes("POST", "/a", body) * 5)
        assert conn.read_reply().body == b"late\n"
        for _ in range(5):
            assert conn.read_reply().body.endswith(b"body=" + body + b"\n")


def test_p9_big_replies_that_nobody_reads_stop_the_taking_of_requests(start_net_probe):
    probe = start_net_probe(stuck_timeout=60_000)
    with probe.connect() as conn:
        conn.send(request_bytes("GET", "/big?16000000") + numbered(200))
        probe.wait_counts(pending=1)
        before = probe.counts()["requests"]
        after = probe.counts()["requests"]
        assert after - before == 1  # the counting itself: none of the 200 was taken
        assert len(conn.read_reply().body) == 16_000_000
        check_numbered(conn, 200)


@pytest.mark.parametrize("body", [1, 1000, 65_536])
def test_bodies_between_requests(probe, body):
    with probe.connect() as conn:
        for _ in range(20):
            reply = conn.request("POST", "/a", b"z" * body)
            assert reply.body.endswith(b"body=" + b"z" * body + b"\n")
