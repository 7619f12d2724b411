"""The processes that the benchmark measures, each private to it and ended with it: a redis-server and pawlds, on TCP and on a unix socket;
etcd and ZooKeeper on TCP."""

import ctypes
import os
import resource
import signal
import shutil
import socket
import subprocess
import tempfile
import time

START_DEADLINE = 30.0
STOP_DEADLINE = 10.0


class BenchError(Exception):
    """Something that ends the benchmark, in words for its user."""


def raise_descriptors():
    """As many descriptors as may be had, for ourselves and all that we start; returns their number."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rss_kib(pid):
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise BenchError(f"process {pid} has no VmRSS")


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In a child: a benchmark that is killed outright takes its servers along."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class RedisClient:
    """As much of a Redis client as a benchmark needs: one command, one reply."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(START_DEADLINE)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, *args):
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise BenchError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise BenchError("Redis: " + rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        return [self.read() for _ in range(int(rest))]

    def __call__(self, *args):
        self.send(*args)
        return self.read()

    def command_calls(self):
        """Calls by command name so far, those that scripts make included."""
        calls = {}
        for line in self("INFO", "commandstats").decode().splitlines():
            if line.startswith("cmdstat_"):
                name, fields = line[len("cmdstat_"):].split(":", 1)
                calls[name] = int(fields.split(",")[0].removeprefix("calls="))
        return calls


class Server:
    """A child process with a log, waited for at its start and at its end."""

    def __init__(self, name, argv, log):
        self.name = name
        self.log = log
        self.started = time.monotonic()
        with open(log, "wb") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                            preexec_fn=die_with_parent)
        self.pid = self.process.pid

    def wait_for(self, is_ready):
        """Polls until ready; returns the seconds since the start."""
        while True:
            if self.process.poll() is not None:
                raise BenchError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            try:
                if is_ready():
                    return time.monotonic() - self.started
            except OSError:
                pass
            if time.monotonic() - self.started > START_DEADLINE:
                raise BenchError(f"{self.name} is not ready after {START_DEADLINE:.0f} s:\n{self.tail()}")
            time.sleep(0.001)

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-15:])

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Redis(Server):
    """Without persistence: neither side of a comparison waits for a disk."""

    def __init__(self, program, folder):
        self.port = free_port()
        self.path = os.path.join(folder, "redis.sock")
        argv = [program, "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.path, "--save", "", "--appendonly", "no",
                "--dir", folder, "--maxmemory-policy", "noeviction", "--tcp-backlog", "1024", "--daemonize", "no"]
        super().__init__("redis-server", argv, os.path.join(folder, "redis.log"))
        self.tcp = f"127.0.0.1:{self.port}"
        self.unix = "unix:" + self.path

    def wait_ready(self):
        def ping():
            client = RedisClient(self.path)
            try:
                return client("PING") == b"PONG"
            finally:
                client.close()
        return self.wait_for(ping)


class Pawld(Server):
    """Speaks to Redis over TCP, as direct clients do, whatever its own clients use. The recovery window is off: nothing here loses data."""

    def __init__(self, program, folder, redis, connections, redis_link="tcp", run_by=()):
        os.makedirs(folder, exist_ok=True)
        self.port = free_port()
        self.path = os.path.join(folder, "pawld.sock")
        store = f"redis://{redis.tcp}/0" if redis_link == "tcp" else "unix://" + redis.path
        argv = [*run_by, program, "--listen", f"127.0.0.1:{self.port}", "--listen", "unix:" + self.path, "--redis", store, "--recovery-window", "0",
                "--max-connections", str(connections), "--idle-timeout", "10m", "--log-level", os.environ.get("BENCH_LOG_LEVEL", "warn")]
        super().__init__("pawld", argv, os.path.join(folder, "pawld.log"))
        self.tcp = f"127.0.0.1:{self.port}"
        self.unix = "unix:" + self.path

    def get(self, path):
        """Status and body of a GET, over the unix socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(START_DEADLINE)
            s.connect(self.path)
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while chunk := s.recv(65536):
                reply += chunk
        head, _, body = reply.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        if len(words) < 3:
            raise BenchError(f"pawld answered GET {path} with {reply[:80]!r}")
        return int(words[1]), body

    def wait_ready(self):
        return self.wait_for(lambda: self.get("/readyz")[0] == 200)


class Rival(Server):
    """One that keeps its data in files: on a disk, or in memory where there is a file system for that, so that it waits for no disk, as Redis here
    waits for none. The latter is more than it would get in earnest, where it is the disk that makes an answer durable."""

    def __init__(self, name, argv, log, data):
        self.data = data
        super().__init__(name, argv, log)

    @staticmethod
    def data_folder(name, in_memory):
        place = "/dev/shm" if in_memory else "/var/tmp"  # which outlives a restart, so it is no memory
        return tempfile.mkdtemp(prefix=f"pawl-bench-{name}-", dir=place if os.access(place, os.W_OK) else None)

    def stop(self):
        super().stop()
        shutil.rmtree(self.data, ignore_errors=True)

    def wait_ready(self):
        def connects():
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return self.answers()
        return self.wait_for(connects)

    def answers(self):
        return True


class Etcd(Rival):
    """One member, its JSON gateway on its client port."""

    def __init__(self, program, folder, in_memory):
        self.port, peer = free_port(), free_port()
        self.tcp = f"127.0.0.1:{self.port}"
        name = "etcd-memory" if in_memory else "etcd"
        data = self.data_folder(name, in_memory)
        url, peers = f"http://{self.tcp}", f"http://127.0.0.1:{peer}"
        super().__init__(name, [program, "--data-dir", data, "--listen-client-urls", url, "--advertise-client-urls", url,
                                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                                "--initial-cluster", f"default={peers}", "--logger", "zap", "--log-level", "error"],
                         os.path.join(folder, name + ".log"), data)

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            reply = b""
            while chunk := s.recv(4096):
                reply += chunk
        return b'"health":"true"' in reply


class ZooKeeper(Rival):
    """One server, from Debian's jars; nothing is forced to disk."""

    JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "metrics-core", "commons-cli")
    PLACE = "/usr/share/java"

    @classmethod
    def is_here(cls):
        return all(os.path.exists(f"{cls.PLACE}/{jar}.jar") for jar in cls.JARS)

    def __init__(self, program, folder):
        self.port = free_port()
        self.tcp = f"127.0.0.1:{self.port}"
        data = self.data_folder("zookeeper", True)
        config = os.path.join(folder, "zoo.cfg")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"tickTime=2000\ndataDir={data}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
                    "admin.enableServer=false\n4lw.commands.whitelist=ruok\n")
        super().__init__("ZooKeeper", [program, "-Xmx512m", "-Dzookeeper.forceSync=no", "-cp",
                                       ":".join(f"{self.PLACE}/{jar}.jar" for jar in self.JARS),
                                       "org.apache.zookeeper.server.quorum.QuorumPeerMain", config],
                         os.path.join(folder, "zookeeper.log"), data)

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall(b"ruok")
            return s.recv(16) == b"imok"
