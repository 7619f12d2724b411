"""Many who watch and many who wait, at once on one node: what they cost it, and what they cost those who lock and unlock meanwhile.

    PAWL_TEST_LONG=1 python3 -m pytest tests/system/test_events_crowds.py -s      1,000 streams and 10,000 waiters, and prints the ratio

The load is tests/bench/load of the build; the optimised build is what the ratio is about, so the long form is for that one.
"""

import json
import multiprocessing
import os
import selectors
import statistics
import subprocess
from pathlib import Path

import pytest

from pawltest.events import EventStream
from pawltest.fixtures import LONG
from pawltest.pawld import PATIENT, binary
from pawltest.wait import until
from pawltest.waiters import Waiter, close_all, hold, standing

STREAMS, WAITERS = (1000, 10_000) if LONG else (100, 500)
ROUNDS, SECONDS = (21, 1) if LONG else (1, 1)
SLOWED_MAX = 0.2
STREAM_KIB_MAX, WAITER_KIB_MAX = 8, 16  # resident, with what the C library keeps
RING_MIB_MAX = 24  # 10,000 events, in both forms, and what is on its way


def load_program():
    path = Path(os.environ.get("TOP_BUILDDIR", Path(binary()).parent)) / "tests" / "bench" / "load"
    if not path.exists():
        pytest.skip(f"there is no {path}: build it with `make check`, or set TOP_BUILDDIR")
    return str(path)


def sanitized():
    with open(binary(), "rb") as f:
        return b"__asan_init" in f.read()


def watch(address, count, pipe):
    """Opens so many streams, says so, reads them until it is told to stop, and tells what came."""
    streams = [EventStream(address) for _ in range(count)]
    pipe.send("open")
    total, ended, block = 0, 0, bytearray(262144)
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.conn.sock.setblocking(False)
            selector.register(stream, selectors.EVENT_READ)
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is pipe:
                    pipe.send((total, ended))
                    return
                n = key.fileobj.conn.sock.recv_into(block)
                total += n
                if n == 0:
                    ended += 1
                    selector.unregister(key.fileobj)


@pytest.fixture
def watchers():
    running = []

    def start(address, count):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=watch, args=(address, count, theirs), daemon=True)
        process.start()
        running.append(process)
        assert ours.poll(120) and ours.recv() == "open"

        def stop():
            ours.send("stop")
            assert ours.poll(60)
            return ours.recv()

        return stop

    yield start
    for process in running:
        process.kill()
        process.join()


def cycles(address):
    done = subprocess.run([load_program(), "http", "--to", address, "--connections", "32", "--seconds", str(SECONDS), "--warm-up", "0.2"],
                          stdout=subprocess.PIPE, timeout=120)
    result = json.loads(done.stdout)
    assert result["errors"] == 0, result
    return result["rate"]


@pytest.mark.deadline(600)
def test_p9_streams_and_waiters_at_once(world, redis, watchers):
    """Broken: watchers or waiters cost much memory, or those who lock pay for those who watch. (P9)"""
    args = [*PATIENT, "--max-connections", "13000", "--max-waiters", "11000", "--max-waiters-per-lock", "11000", "--max-streams", "1000"]
    quiet, crowded = world.pawld(redis, args), world.pawld(redis, args)
    api = crowded.api()
    cycles(crowded.address)  # fills the ring
    base = crowded.rss()
    stop = watchers(crowded.address, STREAMS)
    until(lambda: api.metrics()["pawl_event_streams"] == STREAMS, what="all streams are open")
    with_streams = crowded.rss()
    hold(api, "parked")
    waiters = []
    for i in range(WAITERS):
        waiters.append(Waiter(crowded.address, "parked", 600_000))
        if i % 100 == 99:  # the backlog of the listener stays short
            standing(api, "parked", i + 1, 60)
    with_both = crowded.rss()
    rates = [(cycles(quiet.address), cycles(crowded.address)) for _ in range(ROUNDS)]  # by turns: the machine has other things to do
    peak = crowded.rss()
    assert api.metrics()["pawl_waiters"] == WAITERS
    close_all(waiters)
    total, ended = stop()
    assert ended == 0 and api.metrics()["pawl_event_streams_dropped_total"] == 0, "who reads is never dropped"
    assert total > STREAMS * 1000, "and is sent something"
    ratio = statistics.median(b / a for a, b in rates)
    print(f"{STREAMS} streams, {WAITERS} waiters: {100 * ratio:.0f} % of the lock cycles of a node without them "
          f"({', '.join(f'{b:.0f}/{a:.0f}' for a, b in rates)}), {total / STREAMS / 1e6:.2f} MB a stream, "
          f"{(with_streams - base) / STREAMS / 1024:.1f} KiB a stream, {(with_both - with_streams) / WAITERS / 1024:.1f} KiB a waiter, "
          f"{(peak - with_both) / 2**20:.1f} MiB more under load")
    if sanitized():
        return
    assert (with_streams - base) / STREAMS < STREAM_KIB_MAX * 1024
    assert (with_both - with_streams) / WAITERS < WAITER_KIB_MAX * 1024
    assert peak - with_both < RING_MIB_MAX * 2**20
    if LONG:
        assert ratio > 1 - SLOWED_MAX, f"lock cycles are slowed by {100 * (1 - ratio):.0f} %"
