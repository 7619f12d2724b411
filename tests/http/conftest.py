"""The HTTP front, byte by byte: these tests drive front_probe (front_probe.c), the front with a service made for looking at it.

    FRONT_PROBE=build/tests/http/front_probe python3 -m pytest tests/http

States are waited for in /counts, never slept for.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pawltest.http import Conn  # noqa: E402
from pawltest.tls import server_arguments  # noqa: E402
from pawltest.wait import until  # noqa: E402


def probe_program():
    top = Path(os.environ.get("TOP_BUILDDIR", Path(__file__).resolve().parents[2] / "build"))
    return os.environ.get("FRONT_PROBE", str(top / "tests" / "http" / "front_probe"))


class Probe:
    """One front_probe. `options` are its own, without the dashes: Probe(tmp_path, head_timeout=300)."""

    def __init__(self, folder, listen=("127.0.0.1:0",), descriptors=None, **options):
        command = [probe_program()]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        if any(address.startswith("tls:") for address in listen):
            command += server_arguments()
        for address in listen:
            command += ["--listen", address]
        self.log_path = folder / f"front_probe-{id(self)}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))) if descriptors else None,
            )
        self.addresses = []
        for line in self.process.stdout:
            if line == "ready\n":
                break
            self.addresses.append(line.split()[1])
        else:
            self.process.wait()
        self.address = self.addresses[0] if self.addresses else None
        self._watch = None

    @property
    def pid(self):
        return self.process.pid

    def connect(self, timeout_s=20.0):
        return Conn(self.address, timeout_s)

    def counts(self):
        """Over a connection of its own that stays open: it counts as one of `connections`."""
        if self._watch is None:
            self._watch = self.connect()
        return self._watch.request("GET", "/counts").json()

    def wait_counts(self, deadline_s=20.0, **wanted):
        return until(
            lambda: (lambda c: c if all(c[k] == v for k, v in wanted.items()) else None)(self.counts()), deadline_s, f"counts with {wanted}, now {self.counts()}"
        )

    def wake(self):
        with self.connect() as conn:
            return int(conn.request("POST", "/wake").body)

    def cpu_s(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_end(self, deadline_s=20.0):
        return self.process.wait(deadline_s)

    def stop(self):
        if self._watch is not None:
            self._watch.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()
        assert code == 0, f"front_probe ended with {code}:\n{self.log()}"
        assert "runtime error" not in self.log() and "Sanitizer" not in self.log(), self.log()


NET = {"tcp": "127.0.0.1:0", "tls": "tls:127.0.0.1:0"}


@pytest.fixture
def start_probe(tmp_path):
    """A factory of probes; each must end well, with the sanitizers (where they are built in) silent."""
    probes = []

    def start(**options):
        probe = Probe(tmp_path, **options)
        probes.append(probe)
        assert probe.address, probe.log()
        return probe

    yield start
    for probe in probes:
        probe.stop()


@pytest.fixture(params=["tcp", "unix", "tls"])
def probe_by_kind(request, start_probe, tmp_path):
    """One over TCP, one over a unix socket, one over TLS."""
    return start_probe(listen=[{"tcp": "127.0.0.1:0", "unix": f"unix:{tmp_path}/s", "tls": "tls:127.0.0.1:0"}[request.param]])


@pytest.fixture(params=["tcp", "tls"])
def probe(request, start_probe):
    return start_probe(listen=[NET[request.param]])


@pytest.fixture(params=["tcp", "tls"])
def start_net_probe(request, start_probe):
    """start_probe, with and without TLS."""
    return lambda **options: start_probe(listen=[NET[request.param]], **options)
