"""The recipes of docs/recipes on their real runtimes, against a built pawld (PAWLD).

    PAWLD=build/pawld python3 -m pytest tests/recipes
    PAWLD=build/pawld python3 -m pytest tests/recipes -k java
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from pawltest.fixtures import *  # noqa: E402,F401,F403
from pawltest.fixtures import World  # noqa: E402
from recipes import RECIPES, Book, Run  # noqa: E402


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Where compiled programs lie, for all workers of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    if folder.name.startswith("popen-"):
        folder = folder.parent
    return folder


@pytest.fixture(params=RECIPES, ids=lambda recipe: recipe.name)
def recipe(request, compiled):
    """Each recipe that has its runtime here."""
    if request.param.missing():
        pytest.skip(request.param.missing())
    request.param.compile(compiled)
    return request.param


@pytest.fixture(scope="session")
def shared():
    """One Redis and one pawld for all tests that do no more than use a lock of their own."""
    it = World()
    it.broker = it.redis()
    it.node = it.pawld(it.broker, listen=("127.0.0.1:0", f"unix:{it.folder()}/pawl.sock"))
    yield it
    it.close()


@pytest.fixture
def lock(shared, name):
    """A lock, seen from the other side: through pawld, and in Redis."""
    return Lock(shared, name)


class Lock:
    def __init__(self, shared, name):
        self.redis, self.name, self.api = shared.broker, name, shared.node.api()

    def beside(self, suffix):
        """Another lock of the same test."""
        other = object.__new__(Lock)
        other.redis, other.name, other.api = self.redis, f"{self.name}.{suffix}", self.api
        return other

    def key(self):
        return "pawl:{0}:lock:" + self.name

    def exists(self):
        return self.redis.command("EXISTS", self.key()) == 1

    def waiters(self):
        return self.api.inspect(self.name)[1].get("waiters")

    def take(self, **how):
        status, lease = self.api.acquire(self.name, **{"ttl_ms": 60_000, **how})
        assert status == 200, lease
        return lease

    def free(self, lease):
        status, reply = self.api.release(self.name, lease_id=lease["lease_id"])
        assert status == 200, reply

    def left_nothing(self):
        """P8: neither a lease nor a waiter. Looked at once: what a recipe gives back, it gives back before it ends."""
        found = [key for kind in ("lock", "queue") for key in self.redis.keys("pawl:{0}:" + kind + ":" + self.name)]
        assert found == [], found


@pytest.fixture
def book(tmp_path, lock):
    """The database that the recipes write to, with the guard and a number for the test's lock."""
    return Book(str(tmp_path / "tally.db"), lock.name)


@pytest.fixture
def run(request, shared, lock, book):
    """run(...) starts the test's recipe, or `what`, on the test's lock; all are ended afterwards, and what they said is shown if the test
    failed."""
    started = []

    def start(what=None, server=None, name=None, database=None, ttl_ms=30_000, wait_ms=0, steps=1, pause_ms=10, **more):
        what = what or request.getfixturevalue("recipe")
        arguments = (ttl_ms, wait_ms, database or book.path, steps, pause_ms)
        started.append(Run(what, server or shared.node.address, name or lock.name, *arguments, **more))
        return started[-1]

    yield start
    report = getattr(request.node, "pawl_report", None)
    for it in reversed(started):
        if report is None or report.failed:
            print(f"--- {it.name} (pid {it.pid}), exit {it.child.poll()}:\n{it.stdout()}{it.stderr()[-2000:]}")
        it.close()
