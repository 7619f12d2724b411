"""The fixtures. A conftest.py takes them with `from pawltest.fixtures import *`.

    world     makes redis-servers, pawlds and proxies and ends them all, in reverse order, also when the test fails; a pawld that ended
              badly
              or a sanitizer report fails the test. Logs are kept and named when a test fails.
    redis     one redis-server without persistence
    pawld     one pawld over it, ready
    api       the calls of that pawld
    broker    the three of them, shared by the tests of one module that only use locks of their own names
    name      a lock name that no other test uses

Each test has a deadline of its own (TEST_DEADLINE_S, or @pytest.mark.deadline(seconds)): a hang becomes a failure with a stack.
"""

import faulthandler
import itertools
import os
import shutil
import signal
import threading
import uuid
from types import SimpleNamespace

import pytest

from pawltest.pawld import Pawld
from pawltest.process import socket_folder
from pawltest.proxy import Proxy
from pawltest.redis import RedisServer
from pawltest.sentinel import Group
from pawltest.workers import pytest_collection_modifyitems, pytest_xdist_make_scheduler

TEST_DEADLINE_S = 180
LONG = os.environ.get("PAWL_TEST_LONG") == "1"

__all__ = [
    "world", "redis", "pawld", "api", "lose", "broker", "name",
    "pytest_configure", "pytest_runtest_makereport", "pytest_runtest_protocol", "pytest_collection_modifyitems", "pytest_xdist_make_scheduler",
]


class World:
    """Everything that one test (or one module) has started."""

    def __init__(self):
        self._things = []
        self._folders = []
        self.failed = False

    def keep(self, thing):
        """Ends it with the rest."""
        return self._keep(thing)

    def _keep(self, thing):
        self._things.append(thing)
        return thing

    def redis(self, start=True, **how):
        server = self._keep(RedisServer(**how))
        return server.start() if start else server

    def pawld(self, redis=None, args=(), wait="ready", start=True, **how):
        daemon = self._keep(Pawld(redis, args, **how))
        return daemon.start(wait) if start else daemon

    def proxy(self, target, **how):
        return self._keep(Proxy(target, **how).start())

    def group(self, start=True, **how):
        group = Group(self, **how)
        return group.start() if start else group

    def folder(self):
        path = socket_folder()
        self._folders.append(path)
        return path

    def close(self):
        problem = None
        for thing in reversed(self._things):
            try:
                if isinstance(thing, Pawld) and not self.failed:
                    thing.finish()
            except AssertionError as error:
                problem = problem or error
        keep = self.failed or problem is not None
        for thing in reversed(self._things):
            if isinstance(thing, Proxy):
                thing.close()
                continue
            if keep and thing.child is not None:
                print(f"--- {thing.name} (pid {thing.pid}) kept {thing.folder}\n{(thing.stderr() + thing.stdout())[-3000:]}")
            thing.close(keep_log=keep)
        for path in self._folders:
            shutil.rmtree(path, ignore_errors=True)
        if problem:
            raise problem


@pytest.fixture
def world(request):
    it = World()
    yield it
    report = getattr(request.node, "pawl_report", None)
    it.failed = report is None or report.failed
    it.close()


@pytest.fixture
def redis(world):
    return world.redis()


@pytest.fixture
def pawld(world, redis):
    return world.pawld(redis)


def lose_by_kill(redis):
    redis.kill9()
    redis.start()


def lose_by_flush(redis):
    redis.command("FLUSHALL")


LOSSES = {"kill9": lose_by_kill, "flushall": lose_by_flush}


@pytest.fixture(params=sorted(LOSSES))
def lose(request):
    """How Redis loses all its data: a function of the server."""
    return LOSSES[request.param]


@pytest.fixture
def api(pawld):
    return pawld.api()


@pytest.fixture(scope="module")
def broker():
    it = World()
    server = it.redis()
    daemon = it.pawld(server)
    yield SimpleNamespace(redis=server, pawld=daemon, api=daemon.api())
    it.close()


_counter = itertools.count(1)


@pytest.fixture
def name():
    return f"t{os.getpid()}.{next(_counter)}.{uuid.uuid4().hex[:6]}"


class DeadlineExceeded(BaseException):
    """Not an Exception: no `except` in a test should swallow it."""


def pytest_configure(config):
    config.addinivalue_line("markers", "deadline(seconds): how long this test may take before it fails")
    # long tests open a thousand sockets
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY and hard < 65536 else 65536, hard))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" or (report.when == "setup" and report.failed):
        item.pawl_report = report


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    marker = item.get_closest_marker("deadline")
    seconds = marker.args[0] if marker else TEST_DEADLINE_S

    def alarm(_signal, _frame):
        faulthandler.dump_traceback()
        raise DeadlineExceeded(f"{item.nodeid} took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
