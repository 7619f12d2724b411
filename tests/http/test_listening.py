"""Addresses: what is bound is what was written, or a start error that names it (C43); unix sockets; the end of accepting."""

import os
import socket
import subprocess
import time

import pytest
from conftest import probe_program
from pawltest.http import Conn, open_socket, request_bytes

needs_ipv6 = pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")


def fails_with(*addresses):
    """Starts a probe that must not start; returns what it says."""
    command = [probe_program()] + [part for address in addresses for part in ("--listen", address)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "ready" not in done.stdout and "Sanitizer" not in done.stderr, done
    return done.stderr


@needs_ipv6
def test_c43_ipv6(start_probe):
    probe = start_probe(listen=["[::1]:0"])
    assert probe.address.startswith("[::1]:")
    with probe.connect() as conn:
        assert conn.request("GET", "/a").status == 200


@needs_ipv6
def test_c43_all_of_ipv6_beside_all_of_ipv4_on_one_port(start_probe):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        probe = start_probe(listen=[f"[::]:{port}"])
        assert probe.addresses == [f"[::]:{port}"]
        with Conn(f"[::1]:{port}") as conn:
            assert conn.request("GET", "/a").status == 200


def test_c43_localhost_is_every_address_it_has(start_probe):
    probe = start_probe(listen=["localhost:0"])
    families = {info[4][0] for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    assert len({address.rpartition(":")[2] for address in probe.addresses}) == 1  # one port for all
    assert {address.rpartition(":")[0].strip("[]") for address in probe.addresses} <= families
    for address in probe.addresses:
        with Conn(address) as conn:
            assert conn.request("GET", "/a").status == 200


def test_c43_a_port_in_use_is_named_and_nothing_is_half_bound(start_probe):
    probe = start_probe()
    said = fails_with("127.0.0.1:0", probe.address)
    assert said.count(probe.address) == 1 and "in use" in said and "give another --listen" in said


@pytest.mark.parametrize(
    "address", [":7295", "::1:7295", "[::1]", "[::1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "", "unix:", "unix:relative", "unix:/" + "x" * 200]
)
def test_c43_a_malformed_address_is_named(address):
    said = fails_with(address)
    assert f"front_probe: {address}" in said and len(said.strip()) > len(address) + 20


def test_an_unknown_host_is_named():
    assert "no.such.host.invalid:1" in fails_with("no.such.host.invalid:1")


def test_an_address_of_another_machine_is_named():
    said = fails_with("192.0.2.1:0")
    assert "192.0.2.1" in said


def test_several_addresses(start_probe, tmp_path):
    probe = start_probe(listen=["127.0.0.1:0", "127.0.0.1:0", f"unix:{tmp_path}/s"])
    assert len(probe.addresses) == 3 and probe.addresses[2] == f"unix:{tmp_path}/s"
    for address in probe.addresses:
        with Conn(address) as conn:
            assert conn.request("GET", "/a").status == 200


def test_a_unix_socket_that_was_left_is_replaced_and_removed_at_the_end(start_probe, tmp_path):
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    probe = start_probe(listen=[f"unix:{path}"])
    with probe.connect() as conn:
        assert conn.request("GET", "/a").status == 200
    probe.stop()
    assert not path.exists()


def test_a_unix_socket_that_is_in_use_is_left_alone(start_probe, tmp_path):
    probe = start_probe(listen=[f"unix:{tmp_path}/s"])
    assert "somebody listens" in fails_with(f"unix:{tmp_path}/s")
    with probe.connect() as conn:
        assert conn.request("GET", "/a").status == 200


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("words")
    assert "not a socket" in fails_with(f"unix:{path}")
    assert path.read_text() == "words"


def test_a_unix_socket_of_somebody_else_is_not_removed_at_the_end(start_probe, tmp_path):
    path = tmp_path / "s"
    probe = start_probe(listen=[f"unix:{path}"])
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        probe.stop()
        assert path.exists()


def test_nagle_is_off_for_clients(probe):
    """200 replies to requests of two segments each: with Nagle and delayed acknowledgements nearly all would take 40 ms. A busy machine is slow to some."""
    took = []
    with probe.connect() as conn:
        conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(200):
            began = time.monotonic()
            conn.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
            conn.send(b"x")
            conn.read_reply()
            took.append(time.monotonic() - began)
    assert sorted(took)[50] < 0.03, sorted(took)


# ---- the end


def refuses_connections(address):
    try:
        open_socket(address, 5).close()
        return False
    except OSError:
        return True


def test_stop_accepting_goes_on_serving(start_probe, tmp_path):
    probe = start_probe(listen=["127.0.0.1:0", f"unix:{tmp_path}/s"])
    with probe.connect() as conn:
        assert conn.request("GET", "/stop").body == b"stopped\n"
        assert refuses_connections(probe.addresses[0]) and refuses_connections(probe.addresses[1])
        assert not (tmp_path / "s").exists()
        for _ in range(5):
            reply = conn.request("GET", "/a")
            assert reply.status == 200 and "connection" not in reply.headers


def test_c18_drain_closes_idle_ones_and_the_others_after_their_reply(start_probe, tmp_path):
    probe = start_probe(listen=["127.0.0.1:0", f"unix:{tmp_path}/s"])
    idle, late, half, parked = (probe.connect() for _ in range(4))
    idle.request("GET", "/a")
    late.send(request_bytes("GET", "/late?700"))
    half.send(b"GET /half HTTP/1.1\r\n")
    parked.send(request_bytes("GET", "/park") + request_bytes("GET", "/never"))
    probe.wait_counts(parked=1, connections=5)
    with probe.connect() as conn:
        reply = conn.request("GET", "/drain")
        assert reply.body == b"draining\n" and reply.headers["connection"] == "close"
        assert conn.at_eof()
    assert idle.at_eof()
    assert refuses_connections(probe.addresses[0]) and not (tmp_path / "s").exists()
    half.send(b"Host: h\r\n\r\n")
    reply = half.read_reply()
    assert reply.body.startswith(b"GET /half\n") and reply.headers["connection"] == "close" and half.at_eof()
    reply = late.read_reply()
    assert reply.body == b"late\n" and reply.headers["connection"] == "close" and late.at_eof()
    assert probe.process.poll() is None  # one waits still
    parked.half_close()
    assert parked.read_reply().status == 400 and parked.at_eof()
    assert probe.wait_end() == 0
    assert probe.process.stdout.read() == "drained\n"


def test_drain_of_none(start_probe):
    probe = start_probe()
    with probe.connect() as conn:
        conn.request("GET", "/drain", headers={"Connection": "close"})
    assert probe.wait_end() == 0
