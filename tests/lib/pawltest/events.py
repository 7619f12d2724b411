"""Streams of events: one open reply, read as server-sent events by the rules of their specification.

    with EventStream(address, "?name=x") as stream:
        stream.wait_for("grant")          the next event of that kind; what came before it stays in .seen
"""

import json
import time

from pawltest.http import Conn, request_bytes


class Ended(Exception):
    """The stream is over."""


class EventStream:
    def __init__(self, address, query="", headers=(), http="1.1", timeout_s=30.0):
        self.conn = Conn(address, timeout_s)
        request = request_bytes("GET", "/v1/events/stream" + query, headers=headers)
        self.conn.send(request.replace(b"HTTP/1.1", b"HTTP/" + http.encode("ascii"), 1))
        self.chunked = http == "1.1"
        self.text = b""  # of the body, not yet read as lines
        self.seen = []  # (id or None, kind, value)
        self.comments = 0
        self.whole = False  # the last chunk has come
        self._head()

    def _head(self):
        while b"\r\n\r\n" not in self.conn.buffer:
            chunk = self.conn.sock.recv(65536)
            assert chunk, f"closed before the head: {self.conn.buffer!r}"
            self.conn.buffer += chunk
        head, _, self.conn.buffer = self.conn.buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:]}
        assert self.status == 200, head
        assert self.headers["content-type"] == "text/event-stream", head
        assert self.headers["connection"] == "close" and "content-length" not in self.headers, head
        assert (self.headers.get("transfer-encoding") == "chunked") == self.chunked, head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.conn.close()

    def fileno(self):
        return self.conn.sock.fileno()

    def _take_chunks(self):
        """Moves what is complete from the connection to the text."""
        if not self.chunked:
            self.text, self.conn.buffer = self.text + self.conn.buffer, b""
            return
        while b"\r\n" in self.conn.buffer:
            size, _, rest = self.conn.buffer.partition(b"\r\n")
            n = int(size, 16)
            if len(rest) < n + 2:
                return
            assert rest[n:n + 2] == b"\r\n", rest[:n + 2]
            self.whole = self.whole or n == 0
            self.text += rest[:n]
            self.conn.buffer = rest[n + 2:]

    def _next(self):
        """The next event of the text, or None."""
        while b"\n\n" in self.text:
            block, _, self.text = self.text.partition(b"\n\n")
            fields = {}
            for line in block.decode("utf-8").split("\n"):
                name, _, value = line.partition(":")
                if name == "":
                    self.comments += 1
                else:
                    assert name not in fields, block
                    fields[name] = value.removeprefix(" ")
            if "event" in fields:
                event = (int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"]))
                self.seen.append(event)
                return event
        return None

    def feed(self):
        """Reads once what there is. False: the end."""
        try:
            chunk = self.conn.sock.recv(65536)
        except ConnectionResetError:
            chunk = b""
        self.conn.buffer += chunk
        self._take_chunks()
        return bool(chunk)

    def next(self, deadline_s=30.0):
        """The next event: (id, kind, value)."""
        end = time.monotonic() + deadline_s
        while True:
            self._take_chunks()
            event = self._next()
            if event:
                return event
            left = end - time.monotonic()
            assert left > 0, f"no event within {deadline_s:g} s; seen: {self.seen[-5:]}"
            self.conn.sock.settimeout(left)
            if not self.feed() and b"\n\n" not in self.text:
                raise Ended(f"after {self.seen[-3:]}")

    def wait_for(self, kind, deadline_s=30.0):
        while True:
            event = self.next(deadline_s)
            if event[1] == kind:
                return event[2]
