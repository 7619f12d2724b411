"""HTTP/1.1 by hand: what a test sends is what goes out, and a reply is read strictly or the test fails.

Conn is a connection that stays open: send any bytes in any pieces, read replies one by one. Api has the calls of pawl by name, each
returning (status, dict). An address is what pawld logs: "127.0.0.1:4001", "[::1]:4001", "unix:/path", or
"tls:127.0.0.1:4001", with a certificate of the tests' own authority (tls.py).
"""

import json
import re
import socket
import struct
import time
from urllib.parse import quote

from pawltest.tls import TlsSocket, open_tls

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9]) ([ -~]*)\Z")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_NAME_SAFE = "/._-:@+=,~"


def open_socket(address, timeout_s=30.0):
    if address.startswith("tls:"):
        return open_tls(address, timeout_s)
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        target = address[len("unix:"):]
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        target = (host, int(port))
    sock.settimeout(timeout_s)
    end = time.monotonic() + timeout_s
    try:
        while True:
            try:
                sock.connect(target)
                break
            except BlockingIOError:  # where many connect to a unix socket at once, the kernel says so rather than let a socket with a time-out wait
                if time.monotonic() > end:
                    raise
                time.sleep(0.005)
    except OSError:
        sock.close()
        raise
    return sock


class Closed(Exception):
    """The peer closed before the first byte of a reply."""


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # lower-case name -> value
        self.body = body

    def json(self):
        """The body as JSON: one line that ends in a newline, without duplicate keys."""
        assert self.headers.get("content-type", "").split(";")[0] == "application/json", self
        assert self.body.endswith(b"\n") and self.body.count(b"\n") == 1, self
        return json.loads(self.body.decode("utf-8"), object_pairs_hook=_no_duplicates)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:400]!r}>"


def _no_duplicates(pairs):
    result = dict(pairs)
    assert len(result) == len(pairs), f"duplicate keys in a reply: {pairs}"
    return result


class Conn:
    """One connection. The context manager closes it."""

    def __init__(self, address, timeout_s=30.0, sock=None):
        self.sock = sock or open_socket(address, timeout_s)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def send_request(self, method, target, body=None, headers=()):
        self.send(request_bytes(method, target, body, headers))

    def request(self, method, target, body=None, headers=()):
        self.send_request(method, target, body, headers)
        return self.read_reply(head=method == "HEAD")

    def read_reply(self, head=False):
        """Exactly one reply. Anything that is not strictly HTTP/1.1 with a Content-Length is an AssertionError."""
        first = True
        while b"\r\n\r\n" not in self.buffer:
            chunk = self._recv()
            if not chunk:
                if first and not self.buffer:
                    raise Closed("closed without a reply")
                raise AssertionError(f"closed inside a reply head: {self.buffer!r}")
            self.buffer += chunk
            first = False
        raw_head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = raw_head.split(b"\r\n")
        match = _STATUS_LINE.match(lines[0])
        assert match, f"bad status line: {lines[0]!r}"
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            assert colon and _TOKEN.match(name) and b"\n" not in line, f"bad header line: {line!r}"
            key = name.decode("ascii").lower()
            assert key not in headers, f"header twice: {key}"
            headers[key] = value.strip().decode("latin-1")
        assert "transfer-encoding" not in headers, headers
        length = headers.get("content-length", "")
        assert length.isdigit(), f"no Content-Length: {headers}"
        body = b"" if head else self._read_exactly(int(length))
        return Reply(int(match.group(2)), headers, body)

    def _read_exactly(self, count):
        parts, have = [self.buffer], len(self.buffer)
        while have < count:
            chunk = self._recv()
            assert chunk, f"closed inside a body: {have} of {count} bytes"
            parts.append(chunk)
            have += len(chunk)
        everything = b"".join(parts)
        body, self.buffer = everything[:count], everything[count:]
        return body

    def _recv(self):
        try:
            return self.sock.recv(65536)
        except ConnectionResetError:
            return b""

    def at_eof(self):
        """True when the peer closes (waits for that as long as the socket's time-out); bytes instead are an AssertionError."""
        assert not self.buffer, f"bytes after the reply: {self.buffer!r}"
        chunk = self._recv()
        assert not chunk, f"bytes instead of a close: {chunk!r}"
        return True

    def closed_by_peer(self):
        """Without waiting: has the peer closed?"""
        self.sock.setblocking(False)
        try:
            return not self.buffer and self.sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.sock.settimeout(30.0)

    def answered(self):
        """Without waiting: have bytes of a reply arrived that nobody has read?"""
        self.sock.setblocking(False)
        try:
            return bool(self.buffer or self.sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
        finally:
            self.sock.settimeout(30.0)

    def holds(self):
        """Have bytes been taken off the socket that nobody has read?"""
        return bool(self.buffer) or (isinstance(self.sock, TlsSocket) and self.sock.holds())

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with an RST instead of a FIN (on TCP)."""
        if isinstance(self.sock, TlsSocket):
            self.sock.rst()
            return
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


def request_bytes(method, target, body=None, headers=()):
    """A well-formed request. body: None, bytes, or anything json can write."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode("utf-8")
    lines = [f"{method} {target} HTTP/1.1", "Host: pawl.test"]
    lines += [f"{name}: {value}" for name, value in (headers.items() if isinstance(headers, dict) else headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def bearer(token):
    """The header fields that show this access token; none for None."""
    return [] if token is None else [("Authorization", "Bearer " + token)]


def lock_path(name, verb=None):
    path = "/v1/locks/" + quote(name, safe=_NAME_SAFE)
    return f"{path}/{verb}" if verb else path


class Api:
    """The calls by name. Keeps one connection open, so one Api is for one thread. Every JSON body is checked for its shape: a reply of 200
    has no
    "error", any other has "error" and "message"."""

    def __init__(self, address, timeout_s=30.0, token=None):
        self.address = address
        self.timeout_s = timeout_s
        self.headers = bearer(token)
        self.conn = None

    def call(self, method, target, body=None, headers=()):
        """(status, dict, Reply)."""
        if self.conn is not None and self.conn.closed_by_peer():
            self.close()
        if self.conn is None:
            self.conn = Conn(self.address, self.timeout_s)
        try:
            reply = self.conn.request(method, target, body, [*self.headers, *headers])
        except BaseException:
            self.close()
            raise
        if reply.headers.get("connection", "").lower() == "close":
            self.close()
        if method == "HEAD":
            return reply.status, {}, reply
        value = reply.json()
        if reply.status == 200:
            assert "error" not in value, reply
        else:
            assert isinstance(value.get("error"), str) and isinstance(value.get("message"), str) and value["message"], reply
            if reply.status == 503:
                assert reply.headers.get("retry-after", "").isdigit(), reply
        return reply.status, value, reply

    def _verb(self, name, verb, params):
        return self.call("POST", lock_path(name, verb), params)[:2]

    def acquire(self, name, **params):
        return self._verb(name, "acquire", params)

    def renew(self, name, **params):
        return self._verb(name, "renew", params)

    def release(self, name, **params):
        return self._verb(name, "release", params)

    def check(self, name, **params):
        return self._verb(name, "check", params)

    def brk(self, name, **params):
        return self._verb(name, "break", params)

    def inspect(self, name):
        return self.call("GET", lock_path(name))[:2]

    def list(self, **query):
        text = "&".join(f"{key}={quote(str(value), safe=_NAME_SAFE)}" for key, value in query.items())
        return self.call("GET", "/v1/locks" + ("?" + text if text else ""))[:2]

    def list_all(self, **query):
        """Every page: (names in order of arrival, number of pages)."""
        names, pages, cursor = [], 0, None
        while True:
            status, page = self.list(**query, **({"cursor": cursor} if cursor is not None else {}))
            assert status == 200, page
            names += [lock["name"] for lock in page["locks"]]
            pages += 1
            cursor = page["cursor"]
            if cursor in (None, "", "0", 0):
                return names, pages

    def status(self):
        return self.call("GET", "/v1/status")[:2]

    def readyz(self):
        return self.call("GET", "/readyz")[0]

    def healthz(self):
        return self.call("GET", "/healthz")[0]

    def metrics(self):
        """{'pawl_grants_total': 3.0, 'pawl_requests_total{call="acquire",code="200"}': 3.0, ...}"""
        with Conn(self.address, self.timeout_s) as conn:
            reply = conn.request("GET", "/metrics", None, self.headers)
        assert reply.status == 200, reply
        return parse_metrics(reply.body.decode("utf-8"))

    def must(self, verb, name, **params):
        """The dict of a call that has to succeed."""
        status, value = getattr(self, verb)(name, **params)
        assert status == 200, f"{verb} {name} {params}: {status} {value}"
        return value

    def cycle_s(self, name):
        """How long an acquire and its release took: what somebody feels who is none of a crowd."""
        began = time.monotonic()
        lease = self.must("acquire", name, ttl_ms=5000)
        self.must("release", name, lease_id=lease["lease_id"])
        return time.monotonic() - began

    def close(self):
        if self.conn is not None:
            self.conn.close()
            self.conn = None


_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})?) ([0-9.eE+-]+|\+Inf|NaN)\Z")


def parse_metrics(text):
    assert text.endswith("\n"), "metrics end without a newline"
    samples = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        match = _SAMPLE.match(line)
        assert match, f"not a sample: {line!r}"
        assert match.group(1) not in samples, f"sample twice: {line!r}"
        samples[match.group(1)] = float(match.group(2))
    return samples
