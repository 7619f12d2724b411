"""Who counts as gone, when, and what becomes of a reply: C45, C51 as far as HTTP goes, and the receipts behind P8."""

import multiprocessing
import os
import signal
import socket
from types import SimpleNamespace

import pytest
from pawltest.http import Conn, request_bytes
from pawltest.tls import authority, context, open_tls
from pawltest.wait import until

PARK = request_bytes("GET", "/park")


def late(ms):
    return request_bytes("GET", f"/late?{ms}")


# ---- parked


@pytest.mark.parametrize("target", ["/park", "/park-late?30"])
def test_c45_fin_while_parked_is_gone_and_a_half_closed_client_is_told(probe_by_kind, target):
    probe = probe_by_kind
    with probe.connect() as conn:
        conn.send(request_bytes("GET", target))
        probe.wait_counts(parked=1)
        conn.half_close()
        reply = conn.read_reply()
        assert reply.status == 400 and reply.json() == {
            "error": "bad_request",
            "message": "the client closed its sending side while its request was waiting",
        }
        assert reply.headers["connection"] == "close" and conn.at_eof()
        counts = probe.wait_counts(gone=1, parked=0, connections=1)
        assert counts["bad_requests"] == 0
    assert probe.wake() == 0  # the service forgot it when it was told


def test_close_while_parked_is_gone(probe_by_kind):
    probe = probe_by_kind
    conn = probe.connect()
    conn.send(PARK)
    probe.wait_counts(parked=1)
    conn.close()
    probe.wait_counts(gone=1, parked=0, connections=1)
    assert probe.wake() == 0


def test_reset_while_parked_is_gone(probe):
    conn = probe.connect()
    conn.send(PARK)
    probe.wait_counts(parked=1)
    conn.reset()
    probe.wait_counts(gone=1, parked=0, connections=1)


@pytest.mark.parametrize("target", ["/park", "/park-late?30"])
def test_reset_that_comes_with_the_request_is_gone(probe, target):
    """The request and the reset are both there before the front looks, which is stopped meanwhile: no second event tells of the reset."""
    conns = [probe.connect() for _ in range(20)]
    for conn in conns:
        conn.request("GET", "/a")
    probe.counts()
    os.kill(probe.pid, signal.SIGSTOP)
    for conn in conns:
        conn.send(request_bytes("GET", target))
        conn.reset()
    os.kill(probe.pid, signal.SIGCONT)
    counts = probe.wait_counts(connections=1, parked=0)
    assert counts["gone"] <= 20 and counts["later_delivered"] == 20, "a reset alone proves no loss: the client may have read its reply"
    assert counts["lost"] + counts["later_lost"] + counts["pending"] == 0


@pytest.mark.parametrize("target", ["/park", "/park-late?30"])
def test_fin_that_comes_with_the_request_is_gone(probe_by_kind, target):
    probe = probe_by_kind
    probe.counts()
    conns = [probe.connect() for _ in range(20)] if probe.address.startswith("tls:") else []  # a handshake takes two
    os.kill(probe.pid, signal.SIGSTOP)
    conns = conns or [probe.connect() for _ in range(20)]
    for conn in conns:
        conn.send(request_bytes("GET", target))
        conn.half_close()
    os.kill(probe.pid, signal.SIGCONT)
    for conn in conns:
        assert conn.read_reply().status == 400 and conn.at_eof()
        conn.close()
    assert probe.wait_counts(connections=1, parked=0)["gone"] == 20


def _park_and_wait(address, parked, trust):
    conn = Conn(address, sock=open_tls(address, ctx=context(trust=trust)) if address.startswith("tls:") else None)
    conn.send(PARK)
    parked.set()
    conn.sock.recv(1)


def test_a_killed_client_is_gone(probe_by_kind):
    probe = probe_by_kind
    context = multiprocessing.get_context("spawn")
    parked = context.Event()
    client = context.Process(target=_park_and_wait, args=(probe.address, parked, SimpleNamespace(path=authority().path)))
    client.start()
    assert parked.wait(60)
    probe.wait_counts(parked=1)
    client.kill()
    client.join()
    probe.wait_counts(gone=1, parked=0)


def test_pipelined_bytes_behind_a_parked_request_do_not_hide_the_fin(probe_by_kind):
    probe = probe_by_kind
    conn = probe.connect()
    conn.send(PARK + request_bytes("GET", "/echo") * 50)
    probe.wait_counts(parked=1)
    conn.send(request_bytes("GET", "/echo"))
    conn.close()
    probe.wait_counts(gone=1, parked=0, connections=1)


def test_p9_a_huge_pipeline_behind_a_parked_request_is_cut(probe_by_kind):
    probe = probe_by_kind
    with probe.connect() as conn:
        conn.send(PARK)
        probe.wait_counts(parked=1)
        conn.send(b"x" * (16 * 1024 + 1))
        reply = conn.read_reply()
        assert reply.status == 400 and "too many bytes" in reply.json()["message"]
        assert probe.wait_counts(parked=0)["gone"] == 1
        assert conn.at_eof()


def test_sixteen_kib_behind_a_parked_request_are_kept(probe):
    behind = request_bytes("GET", "/echo?" + "a" * 943)
    assert len(behind) < 1024
    with probe.connect() as conn:
        conn.send(PARK + behind * 16)
        probe.wait_counts(parked=1)
        assert probe.wake() == 1
        assert conn.read_reply().body == b"woken\n"
        for _ in range(16):
            assert conn.read_reply().body.startswith(b"GET /echo\nquery=aaa")


def test_woken_from_inside_another_clients_call(probe_by_kind):
    probe = probe_by_kind
    conns = [probe.connect() for _ in range(50)]
    for conn in conns:
        conn.send(PARK + request_bytes("GET", "/after"))
    probe.wait_counts(parked=50)
    assert probe.wake() == 50
    for conn in conns:
        assert conn.read_reply().body == b"woken\n"
        assert conn.read_reply().body.startswith(b"GET /after\n")
        conn.close()
    probe.wait_counts(parked=0, connections=1, gone=0)


def test_wake_that_races_with_leaving(probe):
    """Each parked request is either woken or gone, never both, never neither."""
    woken = 0
    for _ in range(60):
        conns = [probe.connect() for _ in range(5)]
        for conn in conns:
            conn.send(PARK)
        probe.wait_counts(parked=5)
        with probe.connect() as waker:
            conns[0].close()
            waker.send(request_bytes("POST", "/wake"))
            conns[1].reset()
            conns[2].half_close()
            woken += int(waker.read_reply().body)
        probe.wait_counts(parked=0)
        for conn in conns[2:]:
            conn.close()
    counts = probe.wait_counts(connections=1, pending=0)
    assert woken + counts["gone"] == 300


# ---- short calls


def test_c45_half_close_in_a_short_call_is_served_and_delivered(probe_by_kind):
    probe = probe_by_kind
    with probe.connect() as conn:
        conn.send(late(50))
        conn.half_close()
        reply = conn.read_reply()
        assert reply.body == b"late\n" and reply.headers["connection"] == "close"
        assert conn.at_eof()
    counts = probe.wait_counts(connections=1, pending=0)
    assert counts["delivered"] + counts["later_delivered"] == 1 and counts["lost"] + counts["later_lost"] + counts["gone"] == 0


def test_c45_a_client_that_closed_in_a_short_call_loses_the_reply(probe_by_kind):
    probe = probe_by_kind
    conn = probe.connect()
    conn.send(late(50))
    conn.close()
    counts = probe.wait_counts(connections=1, pending=0)
    assert counts["lost"] + counts["later_lost"] == 1, counts
    assert counts["delivered"] + counts["later_delivered"] + counts["gone"] == 0, counts


def test_a_reset_in_a_short_call_is_gone(probe):
    conn = probe.connect()
    conn.send(late(10_000))
    probe.wait_counts(connections=2)
    until(lambda: probe.counts()["requests"] > 2, what="the late request")
    conn.reset()
    probe.wait_counts(gone=1, connections=1)


def test_a_reply_is_delivered_when_its_client_is_heard_of_again(probe_by_kind):
    """By its next request, or by an end without a reset: until then it may have closed before the reply came."""
    probe = probe_by_kind
    with probe.connect() as conn:
        for _ in range(10):
            conn.request("GET", "/echo")
        assert probe.wait_counts(later_delivered=9)["pending"] == 1
    assert probe.wait_counts(later_delivered=10, pending=0)["later_lost"] == 0


def test_a_reply_that_nobody_reads_is_pending_then_lost(start_net_probe):
    """Bounded: its output stands still, so it is closed at the stuck deadline."""
    probe = start_net_probe(stuck_timeout=2000)
    with probe.connect() as conn:
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.send(request_bytes("GET", "/big?16000000"))
        probe.wait_counts(pending=1)
        counts = probe.wait_counts(connections=1, pending=0)
        assert counts["later_lost"] == 1 and counts["timeouts"] == 1 and counts["later_delivered"] == 0


def test_a_reply_that_is_read_slowly_is_delivered_late(start_net_probe):
    probe = start_net_probe(stuck_timeout=5000)
    size = 16_000_000
    with probe.connect() as conn:
        conn.send(request_bytes("GET", f"/big?{size}"))
        probe.wait_counts(pending=1)
        body = conn.read_reply().body
        assert len(body) == size and body[:30] == b"abcdefghijklmnopqrstuvwxyzabcd" and body[-1] == ord("a") + (size - 1) % 26
        conn.request("GET", "/echo")
        probe.wait_counts(later_delivered=1)
    assert probe.wait_counts(pending=0)["later_lost"] == 0


def test_a_pending_reply_is_lost_when_its_client_leaves(probe_by_kind):
    probe = probe_by_kind
    conn = probe.connect()
    conn.send(request_bytes("GET", "/big?16000000"))
    probe.wait_counts(pending=1)
    conn.close()
    assert probe.wait_counts(connections=1, pending=0)["later_lost"] == 1


def test_c51_a_reply_never_reaches_the_one_who_came_after(probe):
    """Clients vanish with requests in flight while others connect and get their descriptor numbers."""
    for round_number in range(50):
        old = [probe.connect() for _ in range(20)]
        for i, conn in enumerate(old):
            conn.send(late(i % 5) if i % 2 else PARK)
        new = []
        for i, conn in enumerate(old):
            conn.reset() if i % 3 else conn.close()
            new.append(probe.connect())
            new[-1].send(request_bytes("GET", f"/mine/{round_number}/{i}"))
        probe.wake()
        for i, conn in enumerate(new):
            assert conn.read_reply().body.startswith(f"GET /mine/{round_number}/{i}\n".encode())
            assert conn.buffer == b""
            conn.close()
    counts = probe.wait_counts(connections=1, parked=0, pending=0)
    assert counts["requests"] > 1000


def test_nothing_is_left_at_the_end_of_a_process_that_is_stopped_in_the_middle(start_net_probe):
    """Parked, late, half a request, output pending: the front is freed with all of them open (the sanitizers look on)."""
    probe = start_net_probe()
    conns = [probe.connect() for _ in range(4)]
    for conn, data in zip(conns, (PARK + PARK, late(10_000), b"POST / HTTP/1.1\r\nHos", request_bytes("GET", "/big?16000000"))):
        conn.send(data)
    probe.wait_counts(parked=1, pending=1)
    probe.stop()
    for conn in conns:
        conn.close()
