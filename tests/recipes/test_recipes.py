"""What every recipe has to do, whatever its language: the same tests for each row of recipes.py."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from recipes import FOLDER, HELD, LOST, RECIPES, TERMINATED, UNAVAILABLE, WORK_FAILED
from pawltest.auth import AuthFile
from pawltest.wait import always, until

MANY = 100_000  # steps that nobody finishes


def at(address):
    """HOST:PORT as a proxy wants its target."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Front:
    """Stands before a pawld and keeps what was asked, and when. The first requests of a kind are refused with 503; those of another kind
    are carried out, and never answered."""

    def __init__(self, target, refuse=(), retry_after=0, swallow=()):
        self.asked = []  # (time, verb, query and body)
        self.refuse, self.retry_after = dict(refuse), retry_after
        self.swallowed, self.closed = [], threading.Event()
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                verb = self.path.partition("?")[0].rpartition("/")[2]
                front.asked.append((time.monotonic(), verb, self.path + " " + body.decode()))
                headers = {}
                if front.refuse.get(verb, 0) > 0:
                    front.refuse[verb] -= 1
                    status, answer = 503, json.dumps({"error": "store_unavailable", "message": "not now"}).encode() + b"\n"
                    headers["Retry-After"] = str(front.retry_after)
                else:
                    pawld = http.client.HTTPConnection(target, timeout=60)
                    pawld.request("POST", self.path, body)
                    reply = pawld.getresponse()
                    status, answer = reply.status, reply.read()
                    pawld.close()
                if verb in swallow:
                    front.swallowed.append(status)
                    front.closed.wait()
                    self.close_connection = True
                    return
                self.send_response(status)
                for key, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(answer))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def times(self, verb):
        return [when for when, what, _ in self.asked if what == verb]

    def lease_ids(self):
        """Whether they came in the query or in JSON."""
        return {re.search(r'lease_id(?:=|": ?")([0-9a-f-]{36})', text).group(1) for _, _, text in self.asked}

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def front(shared):
    made = []

    def make(**how):
        made.append(Front(shared.node.address, **how))
        return made[-1]

    yield make
    for it in made:
        it.close()


def test_every_file_has_its_row():
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(recipe.file.name for recipe in RECIPES)


def test_workers_do_not_work_at_once_p1(recipe, run, lock, book):
    workers = [run(wait_ms=60_000, ttl_ms=20_000, steps=3, pause_ms=20) for _ in range(3)]
    assert [worker.ended() for worker in workers] == [0, 0, 0]
    assert book.value(lock.name) == 9
    lock.left_nothing()


def test_the_languages_share_one_lock_p1(run, lock, book, compiled):
    there = [each for each in RECIPES if not each.missing()]
    for each in there:
        each.compile(compiled)
    workers = [run(each, wait_ms=60_000, ttl_ms=20_000, steps=3, pause_ms=20) for each in there]
    assert [worker.ended() for worker in workers] == [0] * len(there)
    assert book.value(lock.name) == 3 * len(there)
    lock.left_nothing()


def test_waits_for_its_turn_p6(recipe, run, lock, book):
    """The wait is longer than the ttl, so a deadline that is counted from the acquire has passed before the work begins."""
    holder = lock.take()
    waiter = run(wait_ms=60_000, ttl_ms=6000)
    until(lambda: lock.waiters() == 1, what="the recipe waits")
    waiting = time.monotonic()
    hasty = run(wait_ms=50)
    assert hasty.ended() == HELD, hasty.stderr()
    until(lambda: time.monotonic() > waiting + 6.2, what="more than the ttl has passed")
    assert waiter.running() and book.value(lock.name) == 0
    lock.free(holder)
    assert waiter.ended() == 0
    assert book.value(lock.name) == 1 and book.token(lock.name) > holder["token"]
    lock.left_nothing()


def test_a_lost_reply_leaves_one_lease_p7_c05(recipe, run, shared, lock, book):
    """It doesn't wait and the ttl is long: who asks again with another lease id is told that the lock is held."""
    proxy = shared.proxy(at(shared.node.address))
    proxy.lose_reply_to("/acquire")
    worker = run(server=proxy.http_address, ttl_ms=60_000, steps=1, pause_ms=1500)
    until(lambda: proxy.reply_was_lost() and lock.exists() and not proxy.lose_reply_to("/release"), what="the reply is lost")
    assert worker.ended() == 0, worker.stderr()
    assert proxy.reply_was_lost()
    assert book.value(lock.name) == 1
    lock.left_nothing()


def test_its_node_restarts_while_it_waits_p7_c18(recipe, run, world, shared, lock, book):
    """Told that the node drains, then refused, then at the new one; at the end there was one lease, which is gone."""
    node = world.pawld(shared.broker)
    proxy = world.proxy(at(node.address))
    holder = lock.take()
    waiter = run(server=proxy.http_address, wait_ms=60_000, ttl_ms=60_000)
    until(lambda: lock.waiters() == 1, what="the recipe waits")
    before = proxy.connects
    node.restart()
    proxy.target = at(node.address)
    until(lambda: node.api().inspect(lock.name)[1].get("waiters") == 1 and proxy.connects > before, what="the recipe waits at the new node")
    lock.free(holder)
    assert waiter.ended() == 0, waiter.stderr()
    assert book.value(lock.name) == 1
    lock.left_nothing()


def test_503_is_asked_again_when_it_says_p7(recipe, run, front, lock, book):
    it = front(refuse={"acquire": 1, "release": 1}, retry_after=2)
    worker = run(server=it.address)
    assert worker.ended() == 0, worker.stderr()
    first, second = it.times("acquire")
    assert second - first > 1.9
    first, second = it.times("release")
    assert second - first > 1.9
    assert len(it.lease_ids()) == 1
    assert book.value(lock.name) == 1
    lock.left_nothing()


def test_renews_and_tries_again_c15(recipe, run, front, lock, book):
    """One renewal is refused, and the work, longer than the ttl, isn't disturbed. Beside it: where nobody answers at all, that is said, and why."""
    it = front(refuse={"renew": 1})
    worker = run(server=it.address, ttl_ms=6000, pause_ms=7500)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and doesn't listen
        nowhere = run(server=f"127.0.0.1:{deaf.getsockname()[1]}", name="nowhere")
        assert worker.ended() == 0, worker.stderr()
        assert nowhere.ended() == UNAVAILABLE and re.search(r": 0+ .*connect", nowhere.stderr(), re.I), nowhere.stderr()
    assert 3 <= len(it.times("renew")) <= 10  # at a third of the ttl: not at its end, and not all the time
    assert book.value(lock.name) == 1
    lock.left_nothing()


def test_a_lost_lease_ends_the_work_c14(recipe, run, front, lock, book):
    """Deleted in Redis by hand, and broken by an operator. pawld's word is final: it isn't asked again and again."""
    broken = lock.beside("broken")
    book.add(broken.name)
    it = front()
    workers = {each: run(server=it.address, name=each.name, ttl_ms=9000, steps=MANY) for each in (lock, broken)}
    until(lambda: book.value(lock.name) > 0 and book.value(broken.name) > 0, what="they work")
    renewed = len(it.times("renew"))
    assert lock.redis.command("DEL", lock.key()) == 1
    assert broken.api.brk(broken.name, reason="a test")[0] == 200
    for each, worker in workers.items():
        assert worker.ended() == LOST, worker.stderr()
        value = book.value(each.name)
        assert worker.family() == [] and book.value(each.name) == value
        each.left_nothing()
    assert len(it.times("renew")) - renewed <= 2 + 2  # one each, and one each that may have been under way


def test_no_answer_ends_the_work_before_the_lease_c14(recipe, run, shared, lock, book):
    """Cut off, and before a peer that swallows everything. Nothing is written any more once Redis has let the lease go."""
    silent = lock.beside("silent")
    book.add(silent.name)
    proxies = {each: shared.proxy(at(shared.node.address)) for each in (lock, silent)}
    workers = {each: run(server=proxy.http_address, name=each.name, ttl_ms=6000, steps=MANY) for each, proxy in proxies.items()}
    until(lambda: book.value(lock.name) > 0 and book.value(silent.name) > 0, what="they work")
    proxies[lock].slam = True
    proxies[lock].cut()
    proxies[silent].hole = True
    at_the_end = {}

    def seen():
        for each in workers:
            if each not in at_the_end and not each.exists():
                at_the_end[each] = book.value(each.name)
        return len(at_the_end) == len(workers) and not any(worker.running() for worker in workers.values())

    until(seen, 60, "the leases and the workers have ended", every_s=0.005)
    for each, worker in workers.items():
        assert worker.ended() == LOST, worker.stderr()
        assert book.value(each.name) == at_the_end[each] > 0


def test_a_late_write_is_refused_p2(recipe, run, lock, book):
    """The lease is taken away long before the next renewal: what tells the worker is the database."""
    worker = run(ttl_ms=60_000, steps=MANY)
    until(lambda: book.value(lock.name) > 0, what="it works")
    book.begin()
    assert lock.api.brk(lock.name, reason="a test")[0] == 200
    successor = lock.take()
    book.write_and_commit(lock.name, successor["token"], -1)
    assert worker.ended() == LOST, worker.stderr()
    assert "PAWL1 stale fencing token" in worker.stderr()
    assert book.value(lock.name) == -1
    lock.free(successor)
    lock.left_nothing()


def test_a_worker_stopped_past_its_ttl_writes_nothing_p2(recipe, run, lock, book):
    """It is stopped at the door of the database, with nothing but its write before it. When it goes on, the successor has written."""
    worker = run(ttl_ms=5000, steps=MANY, pause_ms=300)
    until(lambda: book.token(lock.name), what="it has claimed and read, and pauses")
    book.begin()
    value = book.value(lock.name)
    always(worker.running, 1, "the recipe comes to the door")
    worker.stop_all()
    successor = lock.take(wait_ms=30_000)
    book.write_and_commit(lock.name, successor["token"], -1)
    worker.continue_all()
    assert worker.ended() == LOST, worker.stderr()
    assert value in (0, 1) and book.value(lock.name) == -1 and book.token(lock.name) == successor["token"]
    # The second is said where the process is ended before the refusal is heard of.
    assert "PAWL1 stale fencing token" in worker.stderr() or "lost" in worker.stderr(), worker.stderr()
    lock.free(successor)
    lock.left_nothing()


def test_every_way_out_releases_p8(recipe, run, front, lock, book, tmp_path):
    """The ttl is long, so nothing else than a release frees the locks: the work fails; is ended; the recipe is ended while it waits for the
    lock, and while it waits for the answer of an acquire that has been granted."""
    ended, waits, refused, unknown = (lock.beside(suffix) for suffix in ("ended", "waits", "refused", "unknown"))
    book.add(ended.name)
    empty = tmp_path / "empty.db"
    empty.touch()
    failing = run(database=str(empty), ttl_ms=60_000)
    working = run(name=ended.name, ttl_ms=60_000, steps=MANY, pause_ms=100)
    holder = waits.take()
    waiting = run(name=waits.name, ttl_ms=60_000, wait_ms=60_000)
    wrong = run(name=refused.name, ttl_ms=10**12)  # more than pawld allows
    until(lambda: book.value(ended.name) > 0 and waits.waiters() == 1, what="they work and wait")
    it = front(swallow=("acquire",))
    asking = run(server=it.address, name=unknown.name, ttl_ms=60_000)  # last: it asks for some seconds only, and the others may be slow to begin
    until(lambda: it.swallowed[:1] == [200], what="it waits for the answer")
    for worker in (working, waiting, asking):
        worker.signal(signal.SIGTERM)
    assert failing.ended() == WORK_FAILED, failing.stderr()
    assert working.ended() == TERMINATED, working.stderr()
    assert waiting.ended() == TERMINATED, waiting.stderr()
    assert asking.ended() == TERMINATED, asking.stderr()
    assert wrong.ended() == UNAVAILABLE, wrong.stderr()
    assert waits.waiters() == 0
    waits.free(holder)
    for each in (lock, ended, waits, refused, unknown):
        each.left_nothing()
    assert all(worker.family() == [] for worker in (failing, working, waiting, asking))


def test_wrong_usage_is_told_from_failed_work(recipe):
    done = subprocess.run([*recipe.command(), "report", "30000"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 125 and "LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS" in done.stderr, done


def test_a_unix_socket(recipe, run, shared, lock, book):
    if not recipe.unix:
        pytest.skip(f"{recipe.name}: its HTTP client knows no unix sockets")
    worker = run(server=shared.node.addresses()[1])
    assert worker.ended() == 0, worker.stderr()
    assert book.value(lock.name) == 1
    lock.left_nothing()


@pytest.fixture(scope="module")
def strict(shared):
    """A pawld with access rules, over the same Redis; .token is that of the one rule."""
    auth = AuthFile(shared.folder())
    token = auth.rule("worker", ["t"], ["acquire"])
    auth.write()
    node = shared.pawld(shared.broker, auth.args, wait="listening")
    node.token = token
    return node


def test_the_access_token_comes_from_a_file(recipe, run, strict, lock, book, tmp_path):
    """With the end of a line behind it; a wrong one is refused, and said so."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(strict.token + "\n", encoding="ascii")
    wrong.write_text("x" + strict.token, encoding="ascii")
    refused = run(server=strict.address, token_file=str(wrong))
    assert refused.ended() == UNAVAILABLE and "refuses: 401" in refused.stderr(), refused.stderr()
    worker = run(server=strict.address, token_file=str(right))
    assert worker.ended() == 0, worker.stderr()
    assert book.value(lock.name) == 1
    lock.left_nothing()
