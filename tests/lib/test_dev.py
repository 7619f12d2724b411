"""./dev, on a machine that is made of a folder of programs: what it asks of people, and when it configures a build again."""

import os
import shutil
import subprocess

import pytest

TOP = os.environ.get("TOP_SRCDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
REAL = ("sh", "cat", "dirname", "env", "find", "grep", "id", "make", "mkdir", "nproc", "rm", "sed", "tr")


class Machine:
    def __init__(self, folder):
        self.sources, self.programs = folder / "sources", folder / "programs"
        self.sources.mkdir()
        self.programs.mkdir()
        for name in REAL:
            (self.programs / name).symlink_to(shutil.which(name))
        shutil.copy(os.path.join(TOP, "dev"), self.sources)
        (self.sources / "configure.ac").touch()
        self.program("configure", "echo x >>../configured; printf 'all:\\n' >Makefile", self.sources)

    def program(self, name, script, folder=None):
        file = (folder or self.programs) / name
        if file.is_symlink():
            file.unlink()
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        file.chmod(0o755)

    def dev(self, *arguments):
        return subprocess.run(["sh", str(self.sources / "dev"), *arguments], env={"PATH": str(self.programs)}, capture_output=True, text=True,
                              timeout=60, check=False)

    def times_configured(self):
        done = self.dev("build")
        assert done.returncode == 0, done
        return len((self.sources / "configured").read_text(encoding="ascii").splitlines())


@pytest.fixture(name="machine")
def a_machine(tmp_path):
    return Machine(tmp_path)


def test_a_build_learns_of_what_came_after_it(machine):
    """Broken: ./dev run on a new machine, then ./dev test or ./dev lint: the build that is there knows nothing of the library and the tools that were
    installed in between, and fails for want of them."""
    assert machine.times_configured() == 1
    assert machine.times_configured() == 1
    machine.program("shellcheck", "exit 0")
    assert machine.times_configured() == 2
    machine.program("pkg-config", "[ \"$2\" = check ] && echo 0.15.2")
    assert machine.times_configured() == 3
    assert machine.times_configured() == 3


def needy(machine):
    machine.program("id", "echo 1000")
    machine.program("dpkg-query", "exit 1")
    machine.program("apt-get", "echo apt-get >&2; exit 1")
    machine.program("apt-cache", "exit 0")


def told_what_to_do(done):
    assert done.returncode == 1 and "apt-get update && apt-get install --no-install-recommends gcc libc6-dev " in done.stderr, done
    return "install --no-install-recommends" not in done.stdout and "installing" not in done.stdout


def test_without_root_and_sudo_it_says_what_to_install(machine):
    """Broken: it says that it is installing, and then only that it can't."""
    needy(machine)
    assert told_what_to_do(machine.dev("build"))


def test_sudo_is_asked_once(machine, tmp_path):
    """Broken: who is no sudoer is asked for his password for each of the commands that can't work."""
    needy(machine)
    machine.program("sudo", f"echo \"$@\" >>{tmp_path}/asked; exit 1")
    assert told_what_to_do(machine.dev("build"))
    assert (tmp_path / "asked").read_text(encoding="ascii") == "true\n"
