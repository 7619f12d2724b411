"""Places to write to whose reader has stalled: a pipe that is full, and a terminal whose other end nobody reads. Each is (path, the descriptors that keep it)."""

import os
import pty
import time


def _fill(fd):
    """Until nothing more goes in: a terminal makes room again when the kernel has carried away what it got."""
    taken = 1
    while taken > 0:
        taken = 0
        for piece in (b"x" * 512, b"x"):
            try:
                while True:
                    taken += os.write(fd, piece)
            except BlockingIOError:
                pass
        time.sleep(0.05)


def full_pipe(world):
    path = os.path.join(world.folder(), "pipe")
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    _fill(fd)
    return path, [fd]


def full_terminal(_world):
    path, fds = idle_terminal(_world)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    _fill(fd)
    os.close(fd)
    return path, fds


def idle_terminal(_world):
    """Nobody reads it, but it is not full yet."""
    ours, theirs = pty.openpty()
    return os.ttyname(theirs), [ours, theirs]


def close(fds):
    for fd in fds:
        os.close(fd)
