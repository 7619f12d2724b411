"""The built daemon as a child: start it, learn where it listens, stop, kill or freeze it, read its log and its sizes.

PAWLD names the binary. It logs JSON to a file that is read as it grows. finish() is called for every Pawld at the end of a test and fails
it when the
process ended in a way that the test did not ask for, when a sanitizer reported anything, or when a line of the log is no JSON.
"""

import json
import os
import threading
import time

from pawltest.http import Api, Conn, open_socket
from pawltest.process import Process
from pawltest.wait import until

SANITIZER_EXIT = 99
PATIENT = ["--store-timeout", "20s"]  # for crowds: that a busy machine keeps Redis from answering for a second is not what they try
# for tests that weigh it: AddressSanitizer keeps little of what was freed
FRUGAL = {"ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:detect_leaks=1:quarantine_size_mb=1:malloc_context_size=3"}
_REPORTS = ("AddressSanitizer", "LeakSanitizer", "runtime error:", "UndefinedBehaviorSanitizer", "Assertion `", "stack smashing")


def binary():
    path = os.environ.get("PAWLD")
    assert path, "set PAWLD to the built daemon"
    return os.path.abspath(path)


def environment(extra=None):
    """The test's environment without anything that pawld would read, with sanitizers told to speak up."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PAWL")}
    env.setdefault("ASAN_OPTIONS", f"exitcode={SANITIZER_EXIT}:detect_leaks=1:abort_on_error=0:quarantine_size_mb=32")
    env.setdefault("LSAN_OPTIONS", f"exitcode={SANITIZER_EXIT}")
    env.setdefault("UBSAN_OPTIONS", f"exitcode={SANITIZER_EXIT}:print_stacktrace=1:halt_on_error=1")
    env.update(extra or {})
    return env


class Pawld(Process):
    """Pawld(redis=server_or_url, args=[...]).start(). Without a recovery window unless args give one, so that a test need not wait it
    out."""

    def __init__(self, redis=None, args=(), listen=("127.0.0.1:0",), env=None, prefix=(), defaults=True):
        super().__init__("pawld")
        self.redis = redis
        self.args = list(args)
        self.listen = list(listen)
        self.extra_env = dict(env or {})
        self.prefix = list(prefix)
        self.defaults = defaults
        self.expected_exits = {0}
        self._reading = threading.Lock()
        self._read_to = 0
        self._partial = b""
        self._lines = []
        self.stray = []  # lines that are no JSON
        self.token = None  # what api() shows unless it is told otherwise
        self._clients = []

    def argv(self):
        argv = self.prefix + [binary(), "--log-format", "json"]
        for address in self.listen:
            argv += ["--listen", address]
        if self.redis is not None:
            argv += ["--redis", self.redis if isinstance(self.redis, str) else self.redis.url]
        if self.defaults and "--recovery-window" not in self.args and "--dev" not in self.args:
            argv += ["--recovery-window", "0"]
        return argv + self.args

    def start(self, wait="ready", deadline_s=30.0):
        """wait: "ready" (/readyz is 200), "listening" (an address was logged) or None (the process exists)."""
        self.expected_exits = {0}
        self._read_to, self._partial, self._lines, self.stray = 0, b"", [], []
        self.start_process(self.argv(), env=environment(self.extra_env))
        if wait is not None:
            until(lambda: not self.running() or len(self.addresses()) >= len(self.listen), deadline_s, "pawld listens")
            assert self.running(), f"pawld ended at once: {self.stderr()[-3000:]}"
        if wait == "ready":
            self.wait_ready(deadline_s)
        return self

    def log(self, event=None):
        """The log so far as a list of dicts, all or those of one event."""
        with self._reading:  # a test's threads ask for the address, which stands there
            self._read_on()
            return [line for line in self._lines if event is None or line["event"] == event]

    def _read_on(self):
        with open(self.stderr_path, "rb") as f:
            f.seek(self._read_to)
            data = f.read()
        self._read_to += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            try:
                value = json.loads(line.decode("utf-8"))
                assert isinstance(value, dict) and "event" in value
                self._lines.append(value)
            except (ValueError, AssertionError):
                self.stray.append(line.decode("utf-8", "replace"))

    def addresses(self):
        return [line["address"] for line in self.log("listening")]

    @property
    def address(self):
        return self.addresses()[0]

    def api(self, timeout_s=30.0, token=None):
        client = Api(self.address, timeout_s, token or self.token)
        self._clients.append(client)
        return client

    def conn(self, timeout_s=30.0):
        client = Conn(self.address, timeout_s)
        self._clients.append(client)
        return client

    def ready(self):
        api = Api(self.address)
        try:
            return api.readyz() == 200
        except OSError:
            return False
        finally:
            api.close()

    def wait_ready(self, deadline_s=30.0):
        until(lambda: not self.running() or self.ready(), deadline_s, "pawld is ready")
        assert self.running(), f"pawld ended: {self.stderr()[-3000:]}"

    def wait_not_ready(self, deadline_s=30.0):
        until(lambda: not self.ready(), deadline_s, "pawld says that it is not ready")

    def refuses_connections(self):
        try:
            open_socket(self.address).close()
            return False
        except OSError:
            return True

    def stop(self, deadline_s=30.0):
        """SIGTERM and the exit code; open client connections of this object are closed first, so nothing holds the drain up."""
        self.close_clients()
        if self.running():
            if self.proc_stat()[0] == "T":  # a SIGCONT for one that runs may undo the stop by which the leak check at its end looks at it, and hang that
                self.sigcont()
            self.child.terminate()
        return self.wait(deadline_s)

    def kill9(self):
        self.expected_exits.add(-9)
        super().kill9()

    def expect_exit(self, *codes):
        """This process may end with these codes besides 0."""
        self.expected_exits.update(codes)

    def restart(self, wait="ready"):
        self.stop()
        self.check()
        return self.start(wait)

    def close_clients(self):
        for client in self._clients:
            client.close()
        self._clients = []

    def check(self):
        """What finish() checks, for a process that has ended."""
        text = self.stderr()
        for report in _REPORTS:
            assert report not in text, f"pawld reported:\n{text[-6000:]}"
        code = self.child.returncode
        assert code in self.expected_exits, f"pawld ended with {code}, expected {sorted(self.expected_exits)}:\n{text[-6000:]}"
        if self.log("listening"):
            assert not self.stray, f"lines of the log that are no JSON: {self.stray[:5]}"

    def finish(self):
        if self.child is None:
            return
        if self.running():
            self.stop()
        self.check()

    def close(self, keep_log=False):
        self.close_clients()
        if self.running():
            super().kill9()
        if not keep_log:
            self.remove_folder()


def run(*args, env=None, deadline_s=30.0, prefix=()):
    """pawld with these arguments alone, to its end: (exit code, stdout, stderr). For --help and for starts that fail."""
    process = Process("pawld")
    try:
        process.start_process(list(prefix) + [binary(), *args], env=environment(env))
        started = time.monotonic()
        code = process.wait(deadline_s)
        out, err = process.stdout(), process.stderr()
        for report in _REPORTS:
            assert report not in err, f"pawld reported after {time.monotonic() - started:.1f} s:\n{err[-6000:]}"
        return code, out, err
    finally:
        process.kill9()
        process.remove_folder()
