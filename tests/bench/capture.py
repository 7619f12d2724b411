"""What the direct side of the comparison sends: the very commands that this pawld sends.

A benchmark that carried its own copy of keys and arguments would sooner or later compare pawld with something else. So one lock cycle is
run through pawld under MONITOR, and its two commands become templates with holes for the name and the lease id. All else stays as pawld
sent it: its incarnation, its node, its generation, the fence it saw. The scripts are in Redis already, and do for the load what they do for
pawld.
"""

import re
import uuid

from servers import BenchError, RedisClient

PROBE_NAME = b"bench/ffffff/ffffffff"
QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def unquote(text):
    """The bytes that MONITOR wrote as text."""
    def one(match):
        code = match.group(1)
        return bytes([int(code[1:], 16)]) if len(code) == 3 else NAMED.get(code, code)
    return ESCAPE.sub(one, text)


def monitored(redis, action):
    """Runs the action; returns its result and the commands, lists of bytes, that clients (not scripts) sent meanwhile."""
    monitor, other = RedisClient(redis.path), RedisClient(redis.path)
    try:
        if monitor("MONITOR") != b"OK":
            raise BenchError("Redis refuses MONITOR")
        result = action()
        marker = uuid.uuid4().hex.encode()
        other("ECHO", marker)
        commands = []
        while True:
            line = monitor.read()
            words = [unquote(w) for w in QUOTED.findall(line[line.index(b"]"):])]
            if words == [b"ECHO", marker]:
                return result, commands
            if not line.split(b"]")[0].endswith(b" lua"):
                commands.append(words)
    finally:
        monitor.close()
        other.close()


def fill(command, name, lease, seen_name, seen_lease):
    return [word.replace(seen_name, name).replace(seen_lease, lease) for word in command]


def escaped(word, name, lease):
    """An argument in the notation of load's --commands."""
    text = "".join(chr(b) if 0x20 <= b < 0x7f and b != 0x5c else f"\\x{b:02x}" for b in word)
    return text.replace(name.decode(), "\\N").replace(lease.decode(), "\\L")


def first(reply):
    head = reply[0] if isinstance(reply, list) else reply
    return head if isinstance(head, bytes) else str(head).encode()


class Capture:
    """The two commands, and what their replies look like."""

    def __init__(self, redis, run_cycle):
        """run_cycle() runs one cycle through pawld and returns (name, lease id)."""
        run_cycle()  # Redis may not know the scripts before
        (name, lease), sent = monitored(redis, run_cycle)
        self.name, self.lease = name.encode(), lease.encode()
        commands = [c for c in sent if any(self.name in word for word in c)]
        if len(commands) != 2 or not all(c[0].upper() == b"EVALSHA" and any(self.lease in word for word in c) for c in commands):
            raise BenchError("pawld was expected to send two EVALSHA with the lock's name and the lease id, but sent:\n"
                             + "\n".join(map(repr, commands)))
        self.acquire, self.release = commands
        self.probe(redis)

    def probe(self, redis):
        """Runs both by hand, to learn the replies and to see that they really take and free a lock."""
        client = RedisClient(redis.path)
        lease = str(uuid.uuid4()).encode()
        try:
            before = client("DBSIZE")
            granted = client(*fill(self.acquire, PROBE_NAME, lease, self.name, self.lease))
            held = client("DBSIZE")
            fences = [int(client("GET", k)) for k in client("KEYS", "*:fence")]
            released = client(*fill(self.release, PROBE_NAME, lease, self.name, self.lease))
            after = client("DBSIZE")
        finally:
            client.close()
        if (held, after) != (before + 1, before) or not isinstance(granted, list) or len(fences) != 1:
            raise BenchError(f"pawld's own commands, sent by hand, took no lock: {granted!r}, {released!r}")
        # The token is the fence after the grant; scripts answer the fence itself before it, so the last place is the token's.
        places = [i for i, item in enumerate(granted) if i > 0 and item in (fences[0], str(fences[0]).encode())]
        if not places:
            raise BenchError(f"no token in the reply {granted!r}")
        self.status, self.token_at, self.released = first(granted), places[-1], first(released)

    def write(self, path):
        with open(path, "w", encoding="ascii") as f:
            for verb, command, status in (("acquire", self.acquire, self.status), ("release", self.release, self.released)):
                f.write(f"{verb}\n")
                f.writelines(f"arg {escaped(word, self.name, self.lease)}\n" for word in command)
                f.write(f"status {status.decode()}\n")
                if verb == "acquire":
                    f.write(f"token {self.token_at}\n")
