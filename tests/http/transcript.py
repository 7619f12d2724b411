"""Transcripts: what goes over one connection, as text a person can read.

    == a name            a case; each has a connection of its own
    # words              a remark
    > text               sends text and CRLF
    >> text              sends text as it is
    >*N text             sends text N times
    >|                   closes the sending side
    < 200                a reply must come, with this status,
    < Name: value        with this field,
    < -Name              without that one,
    <= text              with this line as body, ended by LF (several lines add up),
    <~ text              with a body that holds this,
    <! code              with a body that is an error in JSON with this code,
    <0                   without a body, whatever Content-Length says
    < close              the server closes
    < open               it does not: one more request is answered

In what is sent, \\n, \\r, \\t, \\\\ and \\xNN stand for bytes. Every reply is checked for what all replies have: see check_reply.
"""

import email.utils
import json
import re
import socket
import time
from pathlib import Path


class Case:
    def __init__(self, name, file, line):
        self.name = name
        self.where = f"{file}:{line}"
        self.steps = []  # ("send", bytes) | ("half-close",) | ("reply", Expected) | ("close",) | ("open",)


class Expected:
    def __init__(self, status):
        self.status = status
        self.present = []
        self.absent = []
        self.body = None
        self.holds = []
        self.error = None
        self.bodyless = False


def _bytes(text):
    escapes = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
    out = b""
    for plain, code, number in re.findall(r"([^\\]+)|\\(?:([nrt\\])|x([0-9a-f]{2}))", text):
        out += plain.encode("latin-1") if plain else escapes[code] if code else bytes([int(number, 16)])
    return out


def _add_line(case, line):
    def send(data):
        if case.steps and case.steps[-1][0] == "send":
            data = case.steps.pop()[1] + data
        case.steps.append(("send", data))

    def expected():
        assert case.steps and case.steps[-1][0] == "reply", f"{case.where}: '{line}' follows no status"
        return case.steps[-1][1]

    if line == ">|":
        case.steps.append(("half-close",))
    elif match := re.fullmatch(r">\*(\d+) (.*)", line):
        send(_bytes(match[2]) * int(match[1]))
    elif line.startswith(">> "):
        send(_bytes(line[3:]))
    elif line == ">" or line.startswith("> "):
        send(_bytes(line[2:]) + b"\r\n")
    elif line in ("< close", "< open"):
        case.steps.append((line[2:],))
    elif match := re.fullmatch(r"< (\d{3})", line):
        case.steps.append(("reply", Expected(int(match[1]))))
    elif match := re.fullmatch(r"< -([A-Za-z-]+)", line):
        expected().absent.append(match[1])
    elif match := re.fullmatch(r"< ([A-Za-z-]+): (.*)", line):
        expected().present.append((match[1], match[2]))
    elif line == "<=" or line.startswith("<= "):
        expected().body = (expected().body or b"") + _bytes(line[3:]) + b"\n"
    elif line.startswith("<~ "):
        expected().holds.append(_bytes(line[3:]))
    elif line.startswith("<! "):
        expected().error = line[3:]
    elif line == "<0":
        expected().bodyless = True
    else:
        raise ValueError(f"{case.where}: what does '{line}' mean?")


def read_cases(path):
    cases = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.startswith("== "):
            cases.append(Case(line[3:], Path(path).name, number))
        elif line and not line.startswith("#"):
            _add_line(cases[-1], line)
    for case in cases:
        assert any(step[0] in ("reply", "close") for step in case.steps), f"{case.where}: expects nothing"
    return cases


class Wire:
    """A socket that yields replies; stricter than any client has to be."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def _more(self):
        chunk = self.sock.recv(65536)
        assert chunk, f"closed, after {self.buffer!r}"
        self.buffer += chunk

    def read_reply(self, bodyless):
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", status_line)
        assert match, status_line
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"twice: {line}"
            headers[name.lower()] = value
        status = int(match[1])
        length = 0 if bodyless or status in (100, 204) else int(headers["content-length"])
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return status, headers, body

    def expect_close(self):
        assert self.buffer == b"" and self.sock.recv(1) == b"", f"more bytes: {self.buffer!r}"


def check_reply(status, headers, body, expected):
    assert status == expected.status, (status, headers, body)
    if status == 100:
        assert headers == {}
        return
    made = email.utils.parsedate_to_datetime(headers["date"]).timestamp()
    assert headers["date"].endswith(" GMT") and abs(made - time.time()) < 5, headers["date"]
    assert headers["cache-control"] == "no-store"
    for name, value in expected.present:
        assert headers.get(name.lower()) == value, (name, headers)
    for name in expected.absent:
        assert name.lower() not in headers, (name, headers)
    if expected.body is not None:
        assert body == expected.body
    for part in expected.holds:
        assert part in body
    if expected.error is not None:
        assert headers["content-type"] == "application/json"
        assert body.endswith(b"\n") and body.count(b"\n") == 1
        value = json.loads(body)
        assert list(value) == ["error", "message"] and value["error"] == expected.error and value["message"], body
    if expected.bodyless:
        assert body == b""


def play(case, sock, dribble):
    """Plays one case. `dribble`: each byte is a send of its own."""
    wire = Wire(sock)
    sock.settimeout(20)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for kind, *what in case.steps:
        if kind == "send" and dribble:
            for at in range(len(what[0])):
                sock.sendall(what[0][at : at + 1])
        elif kind == "send":
            sock.sendall(what[0])
        elif kind == "half-close":
            sock.shutdown(socket.SHUT_WR)
        elif kind == "reply":
            check_reply(*wire.read_reply(what[0].bodyless), what[0])
        elif kind == "close":
            wire.expect_close()
        else:
            sock.sendall(b"GET /still-here HTTP/1.1\r\nHost: h\r\n\r\n")
            assert wire.read_reply(False)[2] == b"GET /still-here\nhost=h\n"
