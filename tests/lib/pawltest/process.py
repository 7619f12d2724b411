"""A child process with its output in files: the part that RedisServer and Pawld share.

Children are ended by pid and nothing else. setpriv (util-linux) makes the kernel end them too when the test run itself is killed.
"""

import collections
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile

_SETPRIV = shutil.which("setpriv")
_TICK = os.sysconf("SC_CLK_TCK")


_reserved = collections.deque()
_RESERVED_MAX = 100  # more than one test uses at a time


def reserve(port):
    """Nobody else's free_port on this machine gives this port, whether its server runs at the moment or not, until this process ends or has asked for so
    many more. The reservation is the name of a socket, which needs no clearing away."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0pawltest-port-{port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    if len(_reserved) > _RESERVED_MAX:
        _reserved.popleft().close()
    return True


def free_port(host="127.0.0.1"):
    """A port that is free now and lies below the range from which the kernel picks ports for outgoing connections, so that it is still
    free when a server that was stopped wants it back; and that no other test has, also while its server is down."""
    for _ in range(200):
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
            try:
                s.bind((host, port))
            except OSError:
                continue
            if reserve(port):
                return port
    raise RuntimeError("no free port found")


def socket_folder():
    """A new folder whose path is short: the path of a unix socket has to fit in 107 bytes."""
    return tempfile.mkdtemp(prefix="pawltest-")


class Process:
    """start_process() .. kill9()/wait(); signals go to this pid alone. Output is in self.stdout_path and self.stderr_path."""

    def __init__(self, name):
        self.name = name
        self.folder = socket_folder()
        self.child = None
        self.generation = 0
        self.stdout_path = self.stderr_path = None

    def start_process(self, argv, env=None, cwd=None):
        assert not self.running(), f"{self.name} is running already"
        self.generation += 1
        self.stdout_path = os.path.join(self.folder, f"{self.name}.{self.generation}.out")
        self.stderr_path = os.path.join(self.folder, f"{self.name}.{self.generation}.err")
        if _SETPRIV:
            argv = [_SETPRIV, "--pdeathsig", "KILL"] + list(argv)
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, cwd=cwd, close_fds=True)

    @property
    def pid(self):
        return self.child.pid

    def running(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        if self.running():
            os.kill(self.pid, number)

    def sigstop(self):
        """Freezes the process and returns when it is frozen."""
        self.signal(signal.SIGSTOP)
        from pawltest.wait import until

        until(lambda: self.proc_stat()[0] == "T", what=f"{self.name} stopped")

    def sigcont(self):
        self.signal(signal.SIGCONT)

    def wait(self, deadline_s=30.0):
        """The exit code; negative for a signal. A process that does not end in time is killed and fails the test."""
        try:
            return self.child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"{self.name} (pid {self.pid}) did not end within {deadline_s:g} s") from None

    def kill9(self):
        if self.running():
            self.child.kill()
        if self.child is not None:
            self.child.wait()

    def proc_stat(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()

    def cpu_s(self):
        """CPU seconds used so far, user and system."""
        fields = self.proc_stat()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def rss(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def children(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]

    def stdout(self):
        return _read(self.stdout_path)

    def stderr(self):
        return _read(self.stderr_path)

    def remove_folder(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path):
    if path is None:
        return ""
    with open(path, "rb") as f:
        return f.read().decode("utf-8", "replace")
