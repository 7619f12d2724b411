"""The recipes as rows of one table: how each is compiled and started, and what it needs. Whoever adds a file to docs/recipes adds its row.

Every recipe is the same program: RECIPE LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS holds LOCK while it adds STEPS to a number of that
name in DATABASE, each time by reading it, pausing, and writing it, in two transactions that claim with the lease's token. So two that work
at once lose an addition, or one is refused.
"""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

from pawltest.pawld import environment
from pawltest.process import Process
from pawltest.wait import until

TOP = Path(__file__).resolve().parents[2]
FOLDER = TOP / "docs" / "recipes"

WORK_FAILED, LOST, HELD, UNAVAILABLE, TERMINATED = 1, 113, 114, 115, 143


class Recipe:
    def __init__(self, name, file, runtime, argv, commands=(), probe=None, build=None, unix=False):
        self.name = name
        self.file = FOLDER / file
        self.runtime = runtime  # the Debian packages, for the message
        self.argv = argv  # with {file} and {compiled}
        self.commands = commands  # to be found in PATH, besides the first of each argv
        self.probe = probe  # a command that succeeds where the runtime has the extensions that are needed
        self.build = build  # a command, run once
        self.unix = unix  # can it use a unix socket?
        self.compiled = None
        self._missing = None

    def missing(self):
        """Why it can't be run here, or an empty text."""
        if self._missing is None:
            commands = [argv[0] for argv in (self.argv, self.build) if argv and "{" not in argv[0]] + list(self.commands)
            absent = [command for command in commands if not shutil.which(command)]
            self._missing = f"{self.name}: no {', '.join(absent)} (Debian: {self.runtime})" if absent else ""
            if not absent and self.probe and subprocess.run(self.probe, capture_output=True, timeout=60, check=False).returncode != 0:
                self._missing = f"{self.name}: an extension is missing (Debian: {self.runtime})"
        return self._missing

    def _fill(self, argv):
        return [word.format(file=self.file, compiled=self.compiled) for word in argv]

    def compile(self, folder):
        """Once for all workers of the test run: who is first does it."""
        if self.compiled is not None:
            return
        self.compiled = os.path.join(folder, "recipe-" + self.name)
        if not self.build:
            return
        os.makedirs(self.compiled, exist_ok=True)
        done = os.path.join(self.compiled, ".done")
        with open(os.path.join(self.compiled, ".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(done):
                env = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": os.path.join(self.compiled, "cache")}
                built = subprocess.run(self._fill(self.build), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       timeout=150, check=False)
                assert built.returncode == 0, built.stdout
                Path(done).touch()

    def command(self):
        return self._fill(self.argv)


RECIPES = [
    Recipe("sh", "pawl_lock.sh", "curl sqlite3 util-linux", ["sh", "{file}"], commands=["curl", "sqlite3", "setsid"], unix=True),
    Recipe("python", "pawl_lock.py", "python3", ["/usr/bin/python3", "{file}"], unix=True),
    Recipe("node", "pawl_lock.mjs", "nodejs sqlite3", ["node", "{file}"], commands=["sqlite3"]),
    Recipe("go", "pawl_lock.go", "golang-go sqlite3", ["{compiled}/pawl_lock"], commands=["sqlite3"],
           build=["go", "build", "-o", "{compiled}/pawl_lock", "{file}"], unix=True),
    # small and quick to start: it is the starting of the machine that takes the time
    Recipe("java", "PawlLock.java", "openjdk-17-jdk-headless sqlite3",
           ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "{compiled}", "PawlLock"], commands=["sqlite3"],
           build=["javac", "-Xlint:all,-serial", "-Werror", "-d", "{compiled}", "{file}"]),
    Recipe("php", "pawl_lock.php", "php-cli php-curl php-sqlite3", ["php", "{file}"],
           probe=["php", "-r", "exit(array_diff(['curl', 'pcntl', 'posix', 'sqlite3'], get_loaded_extensions()) ? 1 : 0);"], unix=True),
    Recipe("ruby", "pawl_lock.rb", "ruby ruby-sqlite3", ["ruby", "{file}"], probe=["ruby", "-rsqlite3", "-e", ""], unix=True),
]


class Book:
    """The database: numbers by name, behind the guard of client/guards/sqlite."""

    def __init__(self, path, *names):
        self.path = path
        self.db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.db.executescript((TOP / "client" / "guards" / "sqlite" / "pawl.sql").read_text(encoding="utf-8"))
        self.db.execute("CREATE TABLE tally (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        self.add(*names)

    def add(self, *names):
        self.db.executemany("INSERT INTO tally VALUES (?, 0)", [(name,) for name in names])

    def value(self, name):
        return self.db.execute("SELECT value FROM tally WHERE name = ?", (name,)).fetchone()[0]

    def token(self, name):
        """The greatest that has claimed; None before the first."""
        row = self.db.execute("SELECT token FROM pawl_fences WHERE resource = ?", (name,)).fetchone()
        return row and row[0]

    def begin(self):
        self.db.execute("BEGIN IMMEDIATE")

    def write_and_commit(self, name, token, value):
        self.db.execute("INSERT INTO pawl_fence VALUES (?, ?)", (name, token))
        self.db.execute("UPDATE tally SET value = ? WHERE name = ?", (value, name))
        self.db.execute("COMMIT")


class Run(Process):
    """One run of a recipe, started at once."""

    def __init__(self, recipe, server, lock, *arguments, token_file=None):
        super().__init__(recipe.name)
        env = environment({"PAWL_SERVER": server if server.startswith("unix:") else "http://" + server})
        if token_file:
            env["PAWL_TOKEN_FILE"] = token_file
        self.start_process(recipe.command() + [lock] + [str(argument) for argument in arguments], env=env)

    def ended(self, deadline_s=60.0):
        return self.wait(deadline_s)

    def family(self):
        """Pids of what it has started, and what those have."""
        found, look_at = [], [self.pid]
        while look_at:
            try:
                with open(f"/proc/{look_at[0]}/task/{look_at[0]}/children", encoding="ascii") as f:
                    found += (born := [int(pid) for pid in f.read().split()])
                    look_at += born
            except OSError:
                pass
            del look_at[0]
        return found

    def stop_all(self):
        """It and its family: nobody runs any more, and nobody new is there."""
        self.sigstop()
        while [pid for pid in self.family() if not _is(pid, "TZX")]:
            for pid in self.family():
                _kill(pid, signal.SIGSTOP)
            until(lambda: all(_is(pid, "TZX") for pid in self.family()), what="all are stopped")

    def continue_all(self):
        """The family first, and the parent when those that write have come to their end: it would end them before they try."""
        family = self.family()
        writers = [pid for pid in family if _name(pid) in ("sqlite3", "php")]
        for pid in family:
            _kill(pid, signal.SIGCONT)
        until(lambda: all(_is(pid, "ZX") for pid in writers), what="the writers have ended")
        self.sigcont()

    def close(self):
        family = self.family() if self.running() else []
        self.kill9()
        for pid in family:
            _kill(pid, signal.SIGKILL)
        self.remove_folder()


def _name(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return ""


def _is(pid, letters):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in letters
    except OSError:
        return True


def _kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
