"""The command `pawl` (PAWL names the built one): short commands to their end, and `pawl run` as a process with a CMD that keeps a diary.

    cli("status", "a", server=address)          (exit code, stdout, stderr)
    Runner(address, name, "--ttl", "2s")        pawl run ... -- the diarist; .beats() what it wrote, .pid is pawl's, .cmd_pid() CMD's
    alive(pid)                                  is it there and no zombie?
    overlaps(diary)                             pairs of CMDs that were alive at the same time, by their own clocks

The diarist writes a line at once, and then one every 2 ms: who it is and what time it is on CLOCK_BOOTTIME. That it was killed needs no line:
a CMD that is alive writes on. What it writes goes out in one write to a file opened for appending, so several share one diary.
"""

import os
import subprocess
import sys
import time

from pawltest.pawld import environment
from pawltest.process import Process
from pawltest.wait import until

LOST, HELD, UNAVAILABLE, NOT_HELD, REFUSED, FAILED = 113, 114, 115, 116, 117, 125

DIARIST = r"""
import os, signal, sys, time
diary, tag, how = sys.argv[1:4]
if how == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
fd = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
me = f"{tag} {os.getpid()} {os.environ.get('PAWL_TOKEN', '0')} "
while True:
    os.write(fd, (me + repr(time.clock_gettime(time.CLOCK_BOOTTIME)) + "\n").encode())
    time.sleep(0.002)
"""


def binary():
    path = os.environ.get("PAWL")
    assert path, "set PAWL to the built command"
    return os.path.abspath(path)


def cli_environment(server, extra=None):
    env = environment(extra)
    if server is not None:
        env["PAWL_SERVER"] = server if server.startswith("unix:") else "http://" + server
    return env


def cli(*args, server=None, env=None, deadline_s=30.0, stdin=subprocess.DEVNULL, cwd=None, prefix=()):
    done = subprocess.run([*prefix, binary(), *args], env=cli_environment(server, env), stdin=stdin, capture_output=True, timeout=deadline_s,
                          cwd=cwd, check=False)
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    for report in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
        assert report not in err, err
    return done.returncode, out, err


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def state(pid):
    """The letter of /proc/PID/stat, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def alive(pid):
    return state(pid) not in (None, "Z", "X")


class Runner(Process):
    """pawl run [args] name -- command. Started at once. Without a command: the diarist, writing to `diary`."""

    def __init__(self, server, name, *args, command=None, diary=None, tag="cmd", how="plain", env=None, start=True, stderr_to=None):
        super().__init__("pawl")
        self.lock = name
        self.diary = diary or os.path.join(self.folder, "diary")
        self.tag = tag
        self.args = list(args)
        self.command = command or [sys.executable, "-S", "-E", "-c", DIARIST, self.diary, tag, how]
        self.env = cli_environment(server, env)
        self.prefix = ["sh", "-c", 'exec "$@" 2>' + stderr_to, "sh"] if stderr_to else []
        if start:
            self.start()

    def start(self):
        self.start_process([*self.prefix, binary(), "run", *self.args, self.lock, "--", *self.command], env=self.env)
        return self

    def beats(self):
        """The times of this runner's tag in the diary."""
        return [at for tag, _, _, at in read_diary(self.diary) if tag == self.tag]

    def until_beating(self, deadline_s=30.0):
        until(lambda: not self.running() or self.beats(), deadline_s, f"CMD of {self.tag} runs")
        assert self.running(), f"pawl ended with {self.child.returncode}: {self.stderr()}"
        return self

    def cmd_pid(self):
        return [pid for tag, pid, _, _ in read_diary(self.diary) if tag == self.tag][-1]

    def token(self):
        return [token for tag, _, token, _ in read_diary(self.diary) if tag == self.tag][-1]

    def check(self):
        text = self.stderr()
        assert "Sanitizer" not in text and "runtime error:" not in text, text

    def close(self, keep_log=False):
        """Also ends a CMD that outlived its pawl, which a test has failed for by then."""
        self.kill9()
        try:
            for _, pid, _, _ in read_diary(self.diary)[-1:]:
                if alive(pid) and self.command[-2:-1] == [self.tag] and self._is_mine(pid):
                    os.kill(pid, 9)
        except (OSError, IndexError):
            pass
        if not keep_log:
            self.remove_folder()

    def _is_mine(self, pid):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return self.diary.encode() in f.read().split(b"\0")


def read_diary(path):
    """[(tag, pid, token, time)], complete lines only."""
    try:
        with open(path, encoding="ascii") as f:
            text = f.read()
    except FileNotFoundError:
        return []
    rows = []
    for line in text[:text.rfind("\n") + 1].splitlines():
        tag, pid, token, at = line.split()
        rows.append((tag, int(pid), int(token), float(at)))
    return rows


def overlaps(path):
    """[(pid, pid, seconds)] of CMDs whose lines are mixed; none is what has to come out."""
    lives = {}
    for _, pid, _, at in read_diary(path):
        first, last = lives.get(pid, (at, at))
        lives[pid] = (min(first, at), max(last, at))
    found = []
    order = sorted((first, last, pid) for pid, (first, last) in lives.items())
    for (_, last, pid), (next_first, _, next_pid) in zip(order, order[1:]):
        if next_first <= last:
            found.append((pid, next_pid, last - next_first))
    return found
