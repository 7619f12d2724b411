"""A proxy that misbehaves on request, for between a client and pawld and between pawld and Redis.

One thread and one selector serve all connections; the test turns the knobs from its own thread:

    delay_up_s, delay_down_s    what a chunk waits before it is passed on ("up" goes to the server, "down" comes back)
    jitter_s                    a random extra of 0 .. jitter_s on each downward chunk (order is kept)
    rate_up                     bytes a second that go up on each connection, None: no bound. What is more waits, as on a slow line
    stall_up, stall_down        nothing passes that way; it is kept and goes on when the knob is turned back
    stall_messages              the same for what comes back on connections that have sent SUBSCRIBE, and
    stall_answers               for what comes back on all others
    hole                        a black hole: what arrives, either way, is thrown away for good (also connections made meanwhile)
    slam                        new connections are closed as soon as they are accepted
    lose_reply_to(marker)       the next request that contains these bytes is passed on; its connection is cut when an answer arrives
                                (on a busy connection that may be the answer to an earlier request: look at the server for what it did)
    cut()                       every connection is reset now
    target                      where new connections go; may be changed
    door(target, rewrite)       one more address with a target of its own, before start(): the knobs above are for all doors; door.shut is for one

    connects                    connections accepted so far
    commands                    with resp=True: Counter of the Redis commands that went up
"""

import collections
import random
import selectors
import socket
import struct
import threading
import time


class _Side:
    """One direction of a connection: source -> queue of (due time, bytes) -> destination."""

    def __init__(self, pair, source, sink, up):
        self.pair, self.source, self.sink, self.up = pair, source, sink, up
        self.queue = collections.deque()
        self.free_at = 0.0  # when the line is free again, with rate_up
        self.eof = False  # the source has ended; passed on when the queue is empty
        self.done = False


class Door:
    """An address of the proxy that leads to a target. `rewrite(bytes)` changes what comes down, whole lines at a time."""

    def __init__(self, target, unix_path=None, rewrite=None):
        self.target, self.rewrite = target, rewrite
        self.shut = False  # as if nothing were there: connections are reset, new ones closed
        if unix_path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(unix_path)
            self.address = unix_path
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", 0))
            self.address = self.listener.getsockname()
        self.listener.listen(512)
        self.listener.setblocking(False)


class _Pair:
    def __init__(self, client, server, door):
        self.client, self.server, self.door = client, server, door
        self.rest = b""  # of what comes down, a line that is not complete yet
        self.up = _Side(self, client, server, True)
        self.down = _Side(self, server, client, False)
        self.holed = False
        self.doomed = False
        self.listens = False  # it has sent SUBSCRIBE
        self.resp = _RespCounter()

    def sides(self):
        return (self.up, self.down)


class _RespCounter:
    """Counts the commands in a stream of RESP arrays of bulk strings, cut anywhere."""

    def __init__(self):
        self.buffer = b""
        self.left = 0
        self.name = None

    def feed(self, data, counter):
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n")
            if end < 0:
                return
            line = self.buffer[:end]
            if self.left == 0:
                if line[:1] == b"*" and line[1:].isdigit():
                    self.left, self.name = int(line[1:]), None
                self.buffer = self.buffer[end + 2:]
                continue
            length = int(line[1:]) if line[:1] == b"$" and line[1:].isdigit() else 0
            if len(self.buffer) < end + 2 + length + 2:
                return
            if self.name is None:
                self.name = self.buffer[end + 2:end + 2 + length].decode("ascii", "replace").upper()
                counter[self.name] += 1
            self.buffer = self.buffer[end + 2 + length + 2:]
            self.left -= 1


class Proxy:
    """Proxy(target).start(); target is (host, port) or the path of a unix socket. Listens on a TCP port of its own, or on unix_path. `rewrite`: that of its
    first door."""

    def __init__(self, target, unix_path=None, resp=False, rewrite=None):
        self.delay_up_s = self.delay_down_s = self.jitter_s = 0.0
        self.rate_up = None
        self.stall_up = self.stall_down = self.stall_messages = self.stall_answers = self.hole = self.slam = False
        self.connects = 0
        self.commands = collections.Counter()
        self.resp = resp
        self._marker = None
        self._pairs = set()
        self._jobs = collections.deque()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._stopping = False
        self._doors = [Door(target, unix_path, rewrite)]
        self.address = self._doors[0].address
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @property
    def target(self):
        return self._doors[0].target

    @target.setter
    def target(self, target):
        self._doors[0].target = target

    def door(self, target, rewrite=None):
        self._doors.append(Door(target, rewrite=rewrite))
        return self._doors[-1]

    @property
    def redis_url(self):
        return f"unix://{self.address}" if isinstance(self.address, str) else f"redis://{self.address[0]}:{self.address[1]}/0"

    @property
    def http_address(self):
        return f"unix:{self.address}" if isinstance(self.address, str) else f"{self.address[0]}:{self.address[1]}"

    def start(self):
        for door in self._doors:
            self._selector.register(door.listener, selectors.EVENT_READ, door)
        self._selector.register(self._wake_read, selectors.EVENT_READ, "wake")
        self._thread.start()
        return self

    def close(self):
        self._stopping = True
        self._poke()
        self._thread.join(10)
        for pair in list(self._pairs):
            self._drop(pair)
        for door in self._doors:
            door.listener.close()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def open_connections(self):
        return len(self._pairs)

    def idle(self):
        """True when nothing that was received is still to be passed on."""
        return not any(side.queue for pair in list(self._pairs) for side in pair.sides())

    def keeps(self, marker):
        """True when bytes with this in them were received and are still to be passed on."""
        return any(marker in data for pair in list(self._pairs) for side in pair.sides() for _, data in tuple(side.queue))

    def lose_reply_to(self, marker):
        self._marker = marker if isinstance(marker, bytes) else marker.encode()

    def reply_was_lost(self):
        """True once the reply that lose_reply_to() asked for has been thrown away."""
        return self._marker is None

    def cut(self):
        """Resets all connections; returns when that is done."""
        done = threading.Event()
        self._jobs.append((self._cut_all, done))
        self._poke()
        assert done.wait(10), "proxy thread is stuck"

    def _cut_all(self):
        for pair in list(self._pairs):
            self._drop(pair, reset=True)

    def _poke(self):
        self._wake_write.send(b"x")

    # everything below runs in the proxy's thread

    def _run(self):
        while not self._stopping:
            for key, _ in self._selector.select(self._patience()):
                if isinstance(key.data, Door):
                    self._accept(key.data)
                elif key.data == "wake":
                    self._wake_read.recv(4096)
                elif key.data.pair in self._pairs:
                    self._readable(key.data)
            while self._jobs:
                job, done = self._jobs.popleft()
                job()
                done.set()
            for pair in list(self._pairs):
                if pair.door.shut:
                    self._drop(pair, reset=True)
                else:
                    self._move(pair)

    def _patience(self):
        """Seconds to sleep: until the next chunk is due; never long, since the knobs are turned without a word to us."""
        wait = 0.02
        now = time.monotonic()
        for pair in self._pairs:
            for side in pair.sides():
                if side.queue and not self._stalled(side):
                    wait = min(wait, max(0.0, side.queue[0][0] - now))
        return wait

    def _stalled(self, side):
        if side.up:
            return self.stall_up
        return self.stall_down or (self.stall_messages if side.pair.listens else self.stall_answers)

    def _accept(self, door):
        while True:
            try:
                client, _ = door.listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            self.connects += 1
            server = None if self.slam or door.shut else self._dial(door.target)
            if server is None:
                client.close()
                continue
            for sock in (client, server):
                sock.setblocking(False)
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, server, door)
            pair.holed = self.hole
            self._pairs.add(pair)
            self._selector.register(client, selectors.EVENT_READ, pair.up)
            self._selector.register(server, selectors.EVENT_READ, pair.down)

    @staticmethod
    def _dial(target):
        server = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
        server.settimeout(5)
        try:
            server.connect(target)
        except OSError:
            server.close()
            return None
        return server

    def _readable(self, side):
        pair = side.pair
        try:
            data = side.source.recv(65536)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(pair, reset=True)
            return
        if not data:
            side.eof = True
            self._selector.unregister(side.source)
            return
        if self.hole or pair.holed:
            pair.holed = True  # a stream with a piece missing can't go on
            return
        if side.up:
            pair.listens = pair.listens or b"SUBSCRIBE" in data
            if self.resp:
                pair.resp.feed(data, self.commands)
            if self._marker is not None and not pair.doomed and self._marker in data:
                pair.doomed = True
        elif pair.doomed:
            self._marker = None
            self._drop(pair, reset=True)
            return
        elif pair.door.rewrite:
            lines, newline, pair.rest = (pair.rest + data).rpartition(b"\n")
            data = pair.door.rewrite(lines + newline)
            if not data:
                return
        due = time.monotonic() + (self.delay_up_s if side.up else self.delay_down_s + random.random() * self.jitter_s)
        if side.queue:
            due = max(due, side.queue[-1][0])
        step = len(data) if self.rate_up is None or not side.up else 2048
        for at in range(0, len(data), step):
            piece = data[at:at + step]
            if self.rate_up is not None and side.up:
                due = side.free_at = max(due, side.free_at) + len(piece) / self.rate_up
            side.queue.append((due, piece))

    def _move(self, pair):
        """Passes on what is due, then an EOF that has nothing before it."""
        now = time.monotonic()
        for side in pair.sides():
            while side.queue and side.queue[0][0] <= now and not self._stalled(side):
                due, data = side.queue[0]
                try:
                    sent = side.sink.send(data)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError:
                    self._drop(pair, reset=True)
                    return
                if sent < len(data):
                    side.queue[0] = (due, data[sent:])
                    break
                side.queue.popleft()
            if side.eof and not side.queue and not side.done and not pair.holed:
                side.done = True
                try:
                    side.sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
        if (pair.up.done and pair.down.done) or (pair.holed and pair.up.eof and pair.down.eof):
            self._drop(pair)

    def _drop(self, pair, reset=False):
        if pair not in self._pairs:
            return
        self._pairs.discard(pair)
        for sock in (pair.client, pair.server):
            try:
                self._selector.unregister(sock)
            except (KeyError, ValueError):
                pass
            if reset and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
