"""`pawl run` on a terminal (C44): a shell with job control in a pty, and what a person types into it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

import pytest

from pawltest.cli import LOST, binary, cli_environment, state
from pawltest.wait import until
from pawltest.waiters import look

PROMPT = "PROMPT>"


class Terminal:
    """bash -i in a pty. type() sends keys, expect() waits for output that came after the last thing that was expected."""

    def __init__(self, server):
        env = cli_environment(server)
        env.update({"PS1": PROMPT, "TERM": "dumb", "HISTFILE": "", "P": binary(), "PY": sys.executable + " -S -E"})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):  # who runs the tests in the background may have them ignored
                signal.signal(number, signal.SIG_DFL)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
        self.seen = ""
        self.all = ""
        self.expect(PROMPT)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def line(self, text):
        self.type(text + "\n")

    def _read(self, timeout_s):
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return
        try:
            text = os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            text = ""
        self.seen += text
        self.all += text

    def expect(self, pattern, deadline_s=20.0):
        """The match; what is before it is forgotten."""
        end = time.monotonic() + deadline_s
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            assert time.monotonic() < end, f"no {pattern!r} on the terminal; it shows:\n{self.all[-3000:]}"
            self._read(0.1)

    def quiet(self, for_s):
        """What comes in that time."""
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            self._read(0.05)
        return self.seen

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def foreground(self):
        return os.tcgetpgrp(self.fd)

    def close(self):
        for pid in descendants(self.pid) + [self.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = [int(child) for child in f.read().split()]
    except OSError:
        return []
    return children + [one for child in children for one in descendants(child)]


def comm(pid):
    """Empty when it has ended meanwhile."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""


def turns(pid):
    """How often it has been off the processor."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)


def group(pid):
    """None when it has ended meanwhile."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@pytest.fixture
def terminal(broker):
    it = Terminal(broker.pawld.address)
    yield it
    it.close()


def program(world, text):
    path = os.path.join(world.folder(), "p.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


COUNT_INT = """
import os, signal, sys, time
count = 0
def on_int(*_):
    global count
    count += 1
    os.write(1, b"INT %d\\n" % count)
signal.signal(signal.SIGINT, on_int)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)
    if count == 3:
        time.sleep(0.3)
        os.write(1, b"total %d\\n" % count)
        sys.exit(6)
"""

RAW = """
import os, sys, termios, tty
old = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"raw\\r\\n")
key = os.read(0, 1)
if sys.argv[1:] == ["restore"]:
    termios.tcsetattr(0, termios.TCSADRAIN, old)
os.write(1, b"key %d\\r\\n" % key[0])
if sys.argv[1:] != ["restore"]:
    while True:
        os.read(0, 1)
"""

SIZE = """
import os, signal, sys, time
def on_winch(*_):
    os.write(1, b"size %d %d\\n" % tuple(os.get_terminal_size(0)))
signal.signal(signal.SIGWINCH, on_winch)
os.write(1, b"ready\\n")
time.sleep(600)
"""


def test_cmd_reads_what_is_typed_c44(terminal, broker, name):
    terminal.line(f"$P run {name} -- cat")
    until(lambda: look(broker.api, name)["held"], what="the lock is held")
    terminal.line("hello there")
    terminal.expect("hello there\r\n")  # the terminal's echo
    terminal.expect("hello there\r\n")  # cat's
    terminal.type("\x04")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=0\r\n")
    assert not look(broker.api, name)["held"]


def test_a_shell_with_job_control_runs_inside_c44(terminal, name):
    terminal.line(f"$P run {name} -- bash --norc --noprofile -i")
    terminal.expect(r"run.*\r\n")
    terminal.expect(PROMPT)
    terminal.line("echo inner $PAWL_LOCK")
    terminal.expect(f"inner {name}\r\n")
    terminal.expect(PROMPT)
    sleeps = lambda: [pid for pid in descendants(terminal.pid) if comm(pid) == "sleep" and group(pid) == terminal.foreground()]  # noqa: E731
    terminal.line("sleep 600")
    until(sleeps, what="it sleeps in the foreground")
    terminal.type("\x1a")  # stops the sleep, for the inner shell
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    terminal.line("fg")
    until(sleeps, what="it sleeps in the foreground again")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    terminal.line("exit 3")
    terminal.expect("exit\r\n")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=3\r\n")


def test_an_editor_gets_single_keys_c44(terminal, world, name):
    terminal.line(f"$P run {name} -- $PY {program(world, RAW)} restore")
    terminal.expect("raw\r\n")
    terminal.type("\x03")  # in raw mode a key like any other
    terminal.expect("key 3\r+\n")
    terminal.expect(PROMPT)


def test_one_int_for_each_ctrl_c_c44(terminal, world, name):
    terminal.line(f"$P run {name} -- $PY {program(world, COUNT_INT)}")
    terminal.expect("ready\r\n")
    for i in (1, 2, 3):
        terminal.type("\x03")
        terminal.expect(f"INT {i}\r\n")
    terminal.expect("total 3\r\n")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=6\r\n")


def test_one_int_also_when_stdin_is_a_pipe_c44(terminal, world, name):
    """Then pawl keeps the terminal, is told, and passes it on."""
    terminal.line(f"true | $P run {name} -- $PY {program(world, COUNT_INT)}")
    terminal.expect("ready\r\n")
    for i in (1, 2, 3):
        terminal.type("\x03")
        terminal.expect(f"INT {i}\r\n")
    terminal.expect("total 3\r\n")


def test_ctrl_c_while_waiting_ends_pawl_c44(terminal, broker, name):
    held = broker.api.must("acquire", name, ttl_ms=60000)
    terminal.line(f"$P run --wait 60s {name} -- echo never")
    until(lambda: look(broker.api, name)["waiters"] == 1, what="it waits")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=130\r\n")
    until(lambda: look(broker.api, name)["waiters"] == 0, what="the waiter has gone")
    broker.api.must("release", name, lease_id=held["lease_id"])


def stopped_job(terminal, broker, name, ttl):
    terminal.line(f"$P run --ttl {ttl} {name} -- cat")
    until(lambda: look(broker.api, name)["held"], what="the lock is held")
    until(lambda: len(descendants(terminal.pid)) == 2 and state(descendants(terminal.pid)[1]) == "S", what="cat reads")
    terminal.line("before")
    terminal.expect("before\r\nbefore\r\n")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    assert [state(pid) for pid in descendants(terminal.pid)] == ["T", "T"]


def foreground(terminal):
    """fg, and the job has the terminal; what is typed before that may be lost between the shell's modes and the job's."""
    terminal.line("fg")
    terminal.expect(r"run --ttl")
    until(lambda: terminal.foreground() == os.getpgid(descendants(terminal.pid)[1]), what="CMD has the terminal")
    until(lambda: termios.tcgetattr(terminal.fd)[3] & termios.ICANON, what="the terminal is in the job's mode")


def test_ctrl_z_and_fg_within_the_ttl_c44(terminal, broker, name):
    stopped_job(terminal, broker, name, "30s")
    foreground(terminal)
    terminal.line("after")
    terminal.expect("after\r\nafter\r\n")
    terminal.type("\x04")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=0\r\n")


def test_ctrl_z_and_fg_twice_c44(terminal, broker, name):
    stopped_job(terminal, broker, name, "30s")
    for text in ("one", "two"):
        foreground(terminal)
        terminal.line(text)
        terminal.expect(f"{text}\r\n{text}\r\n")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect(PROMPT)


def test_ctrl_z_for_longer_than_the_ttl_is_a_lost_lease_c44(terminal, broker, name):
    stopped_job(terminal, broker, name, "1s")
    until(lambda: not look(broker.api, name)["held"], what="the lease has ended")
    terminal.line("fg")
    terminal.expect("lost")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect(f"code={LOST}\r\n")
    assert descendants(terminal.pid) == []


def test_bg_then_fg_c44(terminal, broker, name):
    """In the background CMD runs until it wants to read; fg gives it the terminal."""
    stopped_job(terminal, broker, name, "30s")
    before = [turns(pid) for pid in descendants(terminal.pid)]
    terminal.line("bg")
    terminal.expect(PROMPT)
    # both have run and have stopped again, and not: are stopped still
    until(lambda: all(state(pid) == "T" and turns(pid) > was for pid, was in zip(descendants(terminal.pid), before)), what="stopped for want of the terminal")
    foreground(terminal)
    terminal.line("after")
    terminal.expect("after\r\nafter\r\n")


def test_started_in_the_background_then_fg_c44(terminal, name):
    """The shell tells nobody that a running job is in the foreground now: a key is passed on, and reading works."""
    terminal.line(f"$P run {name} -- sh -c 'trap \"echo INT\" INT; echo started; while ! [ -e /nonexistent/x ] && sleep 0.1; do read x && echo got $x; done' &")
    terminal.expect("started\r\n")
    terminal.line("echo the shell has it")
    terminal.expect("the shell has it\r\n")
    terminal.line("fg")
    terminal.expect(r"run ")
    until(lambda: terminal.foreground() not in (os.getpgid(terminal.pid), None) and termios.tcgetattr(terminal.fd)[3] & termios.ICANON,
          what="the job has the terminal")
    terminal.line("a word")
    terminal.expect("got a word\r\n")
    terminal.type("\x03")
    terminal.expect("INT\r\n")


def test_in_front_of_a_pipe_the_terminal_is_given_on_demand_c44(terminal, name):
    terminal.line(f"$P run {name} -- sh -c 'read x; echo got $x' | cat")
    terminal.line("a word")
    terminal.expect("got a word\r\n")
    terminal.expect(PROMPT)


def test_no_terminal_leaves_it_alone_c44(terminal, broker, name):
    terminal.line(f"$P run --no-terminal {name} -- sh -c 'trap \"echo INT; exit 8\" INT; echo ready; while :; do sleep 0.05; done'")
    terminal.expect("ready\r\n")
    assert terminal.foreground() == os.getpgid(descendants(terminal.pid)[0])
    terminal.type("\x03")
    terminal.expect("INT\r\n")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?")
    terminal.expect("code=8\r\n")


def test_a_window_that_changes_is_told_c44(terminal, world, name):
    terminal.line(f"$P run {name} -- $PY {program(world, SIZE)}")
    terminal.expect("ready\r\n")
    terminal.resize(33, 111)
    terminal.expect("size 111 33\r\n")
    terminal.type("\x03")
    terminal.expect(PROMPT)


def test_modes_and_terminal_come_back_when_cmd_is_killed_c44(terminal, broker, world, name):
    """CMD has the terminal in raw mode when its lease is lost."""
    terminal.line(f"$P run --ttl 1s {name} -- sh -c 'trap \"\" TERM; $PY {program(world, RAW)}; sleep 600'")
    terminal.expect("raw\r\n")
    broker.api.must("brk", name, reason="test")
    terminal.expect(PROMPT)
    terminal.line("echo code=$?; stty -a")
    terminal.expect(f"code={LOST}\r\n")
    terminal.expect(" icanon")
    terminal.expect(" echo ")
    until(lambda: terminal.foreground() == os.getpgid(terminal.pid), what="the shell has the terminal")
