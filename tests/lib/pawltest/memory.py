"""Memory that is short when a test says so: no_memory.c, built on the spot, for the programs that the test starts."""

import mmap
import os
import shutil
import struct
import subprocess

import pytest

_MEMORY, _WATCHES = 0, 1


class Shortage:
    """Shortage(world, program): env is for the program of that path. Needs a C compiler, as building pawl did; without one the test is skipped."""

    def __init__(self, world, program):
        compiler = os.environ.get("CC", "cc").split()
        if shutil.which(compiler[0]) is None:
            pytest.skip("no C compiler")
        folder = world.folder()
        library, path = os.path.join(folder, "no_memory.so"), os.path.join(folder, "no_memory")
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "no_memory.c")
        subprocess.run([*compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        with open(path, "w+b") as f:
            f.write(struct.pack("5q", 0, -1, 0, -1, 0))
            f.flush()
            self._shared = mmap.mmap(f.fileno(), 40)
        asan = f"exitcode=99:detect_leaks=1:abort_on_error=0:quarantine_size_mb=32:verify_asan_link_order=0:{os.environ.get('ASAN_OPTIONS', '')}"
        self.env = {"LD_PRELOAD": library, "NO_MEMORY": path, "NO_MEMORY_OF": os.path.basename(program), "ASAN_OPTIONS": asan}

    @property
    def failed(self):
        """Requests that failed so far."""
        return struct.unpack_from("q", self._shared, 0)[0]

    def _arm(self, kind, granted, count):
        at = 8 * (1 + 2 * kind)
        struct.pack_into("q", self._shared, at, -1)
        struct.pack_into("q", self._shared, at + 8, count)
        struct.pack_into("q", self._shared, at, granted)

    def of_memory(self, granted, count=1):
        """So many requests more are granted, then `count` fail."""
        self._arm(_MEMORY, granted, count)

    def of_watches(self, granted, count=1):
        """The same for descriptors that epoll is to watch."""
        self._arm(_WATCHES, granted, count)

    def over(self):
        self.of_memory(-1, 0)
        self.of_watches(-1, 0)
