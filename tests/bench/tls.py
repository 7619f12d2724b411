#!/usr/bin/python3
"""What TLS costs pawld: its memory for connections that are idle or wait, its processor time for a cycle and for a handshake, beside the same over plain TCP.

    PAWLD=build/pawld /usr/bin/python3 tests/bench/tls.py [--connections 2000] [--cycles 10000]

The client is slow, so nothing here is a throughput: the numbers are what pawld's own process used.
"""

import argparse
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from pawltest.http import Api, lock_path, open_socket, request_bytes  # noqa: E402
from pawltest.pawld import Pawld  # noqa: E402
from pawltest.redis import RedisServer  # noqa: E402
from pawltest.tls import authority, context, open_tls, server_arguments  # noqa: E402
from pawltest.wait import until  # noqa: E402


def memory(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("Pss_Anon")).split()[1]) * 1024


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Kind:
    def __init__(self, name, listen, arguments=(), client=None):
        self.name, self.listen, self.arguments = name, listen, list(arguments)
        self.context = context(client=client)

    def start(self, redis):
        self.pawld = Pawld(redis, [*self.arguments, "--max-wait", "10m"], listen=[self.listen, "127.0.0.1:0"]).start(wait="listening")
        self.plain = Api(self.pawld.addresses()[1])
        until(lambda: self.plain.readyz() == 200, what="ready")

    def with_a_fresh_pawld(self, redis, measure):
        """Memory that one measurement left in the allocator would hide that of the next."""
        redis.command("FLUSHALL")
        self.start(redis)
        try:
            return measure()
        finally:
            self.plain.close()
            self.pawld.stop()
            self.pawld.close()

    def connect(self):
        address = self.pawld.addresses()[0]
        return open_tls(address, ctx=self.context) if address.startswith("tls:") else open_socket(address)

    def get(self, sock):
        sock.sendall(request_bytes("GET", "/healthz"))
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")

    def per_connection(self, count, wait):
        """Bytes for each."""
        for _ in range(50):  # what the first ones leave behind is not theirs
            sock = self.connect()
            self.get(sock)
            sock.close()
        self.plain.acquire("held", ttl_ms=600_000)
        before, socks = memory(self.pawld.pid), []
        for _ in range(count):
            socks.append(self.connect())
            self.get(socks[-1])
            if wait:
                socks[-1].sendall(request_bytes("POST", lock_path("held", "acquire"), {"wait_ms": 600_000}))
        if wait:
            until(lambda: self.plain.status()[1]["waiters"] == count, 60, "all wait")
        used = (memory(self.pawld.pid) - before) / count
        for sock in socks:
            sock.close()
        until(lambda: self.plain.metrics()["pawl_connections"] <= 3, 60, "all left")
        return used

    def per_cycle(self, count):
        """Seconds of processor for an acquire and a release on a connection that stands."""
        api = Api(self.pawld.addresses()[0])
        if self.pawld.addresses()[0].startswith("tls:"):
            from pawltest.http import Conn

            api.conn = Conn(None, sock=self.connect())
        before = cpu_s(self.pawld.pid)
        for i in range(count):
            lease = api.must("acquire", f"c{i}", ttl_ms=5000)["lease_id"]
            api.must("release", f"c{i}", lease_id=lease)
        return (cpu_s(self.pawld.pid) - before) / count

    def per_connect(self, count):
        """Seconds of processor for a connection, one request and the close."""
        before = cpu_s(self.pawld.pid)
        for _ in range(count):
            sock = self.connect()
            self.get(sock)
            sock.close()
        return (cpu_s(self.pawld.pid) - before) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--cycles", type=int, default=10000)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, options.connections + 500)), hard))
    redis = RedisServer().start()
    kinds = [
        Kind("tcp", "127.0.0.1:0"),
        Kind("tls", "tls:127.0.0.1:0", server_arguments()),
        Kind("tls, client certificate", "tls:127.0.0.1:0", [*server_arguments(), "--tls-client-ca", authority().path], authority().make("worker")),
    ]
    try:
        print(f"{'':26}{'idle, bytes':>14}{'waiting, bytes':>16}{'cycle, us':>12}{'connect, us':>13}")
        for kind in kinds:
            measure = [
                lambda: kind.per_connection(options.connections, False),
                lambda: kind.per_connection(options.connections, True),
                lambda: kind.per_cycle(options.cycles) * 1e6,
                lambda: kind.per_connect(options.cycles // 10) * 1e6,
            ]
            results = [kind.with_a_fresh_pawld(redis, one) for one in measure]
            print("{:26}{:14.0f}{:16.0f}{:12.0f}{:13.0f}".format(kind.name, *results), flush=True)
    finally:
        redis.close()


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"({time.monotonic() - started:.0f} s)")
