"""A redis-server of the test's own, and the smallest RESP client that can talk to it.

The server has a folder, a port (or a unix socket) and a log of its own and keeps them over restarts, so that a client which reconnects
finds it again. Persistence is off unless a restart asks for the data to be kept.
"""

import os
import shutil
import socket

from pawltest.process import Process, free_port
from pawltest.wait import until


class RespError(Exception):
    """An error reply, e.g. "READONLY You can't write against a read only replica."."""


class RespConn:
    """One connection: command("SET", "k", 1) sends and reads one reply. Bulk strings come back as str (surrogateescape), nil as None."""

    def __init__(self, address, timeout_s=30.0):
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
        else:
            self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.sock.settimeout(timeout_s)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.file = self.sock.makefile("rb")

    def send(self, *args):
        parts = [b"*%d\r\n" % len(args)]
        for arg in args:
            raw = arg if isinstance(arg, bytes) else str(arg).encode("utf-8", "surrogateescape")
            parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
        self.sock.sendall(b"".join(parts))

    def read(self):
        reply = self._read()
        if isinstance(reply, RespError):
            raise reply
        return reply

    def command(self, *args):
        self.send(*args)
        return self.read()

    def _read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode("utf-8", "surrogateescape")
        if kind == b"-":
            return RespError(rest.decode("utf-8", "surrogateescape"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            raw = self.file.read(int(rest) + 2)
            return raw[:-2].decode("utf-8", "surrogateescape")
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise AssertionError(f"not RESP: {line!r}")

    def close(self):
        self.file.close()
        self.sock.close()


class RedisServer(Process):
    """RedisServer().start(); options are redis.conf names: RedisServer(options={"maxmemory": "10mb", "requirepass": "x"})."""

    def __init__(self, options=None, unix=False, host="127.0.0.1", port=None, password=None):
        super().__init__("redis")
        self.options = dict(options or {})
        self.host = host
        self.fixed_port = port
        self.port = port
        self.unix_path = os.path.join(self.folder, "redis.sock") if unix else None
        self.password = password
        if password is not None:
            self.options.setdefault("requirepass", password)
        self.admin = None

    @property
    def address(self):
        return self.unix_path or (self.host, self.port)

    @property
    def url(self):
        """For --redis; without the password, which a test spells itself."""
        return f"unix://{self.unix_path}" if self.unix_path else f"redis://{self.host}:{self.port}/0"

    @property
    def log_path(self):
        return self.stdout_path

    def start(self, ready=True):
        """Returns once this very server answers (or only runs, with ready=False). Picks another port when its own is taken."""
        for attempt in range(5):
            if not self.unix_path and self.port is None:
                self.port = free_port(self.host)
            self.start_process(self._argv())
            if not ready:
                return self
            until(lambda: not self.running() or self._is_mine(), what="redis answers")
            if self.running():
                return self
            if self.fixed_port is None and "in use" in self.stdout() and attempt < 4 and self.generation == attempt + 1:
                self.port = None
                continue
            raise AssertionError(f"redis-server ended at once:\n{self.stdout()[-2000:]}")
        raise AssertionError("redis-server found no port")

    def _argv(self):
        options = {"dir": self.folder, "save": "", "appendonly": "no", "logfile": "", "daemonize": "no", "loglevel": "notice"}
        if self.unix_path:
            options.update({"port": 0, "unixsocket": self.unix_path})
        else:
            options.update({"port": self.port, "bind": self.host})
        options.update(self.options)
        argv = ["redis-server"]
        for key, value in options.items():
            argv += [f"--{key}", str(value)]
        return argv

    def _is_mine(self):
        try:
            return self.info("server")["process_id"] == str(self.pid)
        except RespError as error:
            return str(error).startswith("LOADING")
        except (OSError, KeyError):
            return False

    def connect(self, timeout_s=30.0):
        """A connection of one's own (the shared one of command() is made again after a restart)."""
        conn = RespConn(self.address, timeout_s)
        if self.password is not None:
            conn.command("AUTH", self.password)
        return conn

    def command(self, *args):
        if self.admin is None:
            self.admin = self.connect()
        try:
            return self.admin.command(*args)
        except (OSError, ConnectionError):
            self.forget_connection()
            raise

    def forget_connection(self):
        if self.admin is not None:
            self.admin.close()
            self.admin = None

    def info(self, section="default"):
        lines = self.command("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))

    def loaded(self):
        try:
            return self.command("PING") == "PONG"
        except (RespError, OSError):
            return False

    def keys(self, pattern="*"):
        found, cursor = set(), "0"
        while True:
            cursor, page = self.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found.update(page)
            if cursor == "0":
                return found

    def lock_key(self, name, prefix="pawl:"):
        return f"{prefix}{{0}}:lock:{name}"

    def pttl(self, name):
        """Milliseconds left of a lock, -1 without expiry, -2 without a key."""
        return self.command("PTTL", self.lock_key(name))

    def holds(self, name):
        return self.command("EXISTS", self.lock_key(name)) == 1

    def stop(self):
        """An orderly end that saves nothing. A frozen server is thawed first."""
        self.forget_connection()
        if self.running():
            self.sigcont()
            self.child.terminate()
            self.wait()

    def kill9(self):
        self.forget_connection()
        super().kill9()

    def restart(self, keep_data, ready=True):
        """Stops and starts again at the same address. keep_data: what is in memory is saved first, and loaded again."""
        dump = os.path.join(self.folder, "dump.rdb")
        if keep_data:
            self.command("SAVE")
        elif os.path.exists(dump):
            os.unlink(dump)
        self.stop()
        return self.start(ready)

    def save_copy(self):
        """Saves and puts a copy of the snapshot aside; returns its path, for start_from()."""
        self.command("SAVE")
        path = os.path.join(self.folder, f"copy-{self.generation}.rdb")
        shutil.copy(os.path.join(self.folder, "dump.rdb"), path)
        return path

    def start_from(self, snapshot):
        """Starts with an older snapshot: the data have rolled back."""
        shutil.copy(snapshot, os.path.join(self.folder, "dump.rdb"))
        return self.start()

    def close(self, keep_log=False):
        self.kill9()
        if not keep_log:
            self.remove_folder()
