"""The clients of a chaos run: a process of its own with a thread for each, all after the same few locks:
a crowd at the hot ones, and a few who hold the calm ones for long, so that there is always something to lose.

A client plays one short scene after another and picks them by dice of its own, which come from the seed. Each call goes to a node of its choice and
into the history. A client knows of a lease what its replies told it, and writes to the lock's register under the token it was told, also when it
should know better: refusing that is the register's part.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import uuid

from chaos.history import History, Register, now
from pawltest.http import Api, Closed

PATIENCE_S = 5.0  # longer than the longest wait; then a client gives its call up


class Client:
    def __init__(self, number, seed, sockets, registers, history, stop):
        self.number, self.sockets, self.registers, self.history, self.stop = number, sockets, registers, history, stop
        self.dice = random.Random(f"{seed}/{number}")
        self.apis = {}
        self.home = number % len(sockets)

    def run(self):
        scenes = [self.hold] * 3 + [self.keep] * 2
        scenes += [self.renew_often, self.stall, self.leave, self.vanish, self.repeat, self.stranger, self.wander]
        while not self.stop.is_set():
            scene = self.dice.choice(scenes)
            calm = scene == self.keep or self.dice.random() < 0.2
            scene(self.dice.choice(sorted(lock for lock in self.registers if lock.startswith("calm/") == calm)))
            self.pause(0.0, 0.1)
        for api in self.apis.values():
            api.close()

    # ---- calls

    def pause(self, low, high):
        self.stop.wait(self.dice.uniform(low, high))

    def node(self):
        """Mostly its own one: a service has a pawld beside it."""
        return self.home if self.dice.random() < 0.6 else self.dice.randrange(len(self.sockets))

    def call(self, verb, lock, node=None, lease=None, patience_s=PATIENCE_S, **params):
        """The record of the call, which is in the history."""
        node = self.node() if node is None else node
        record = {"verb": verb, "lock": lock, "lease": lease, "client": self.number, "node": node, "status": None, "token": None,
                  "ask_ttl_ms": params.get("ttl_ms", 0), "wait_ms": params.get("wait_ms", 0), "delay_ms": params.get("lock_delay_ms", 0),
                  "hold_ms": params.get("max_hold_ms", 0)}
        if lease:
            params["lease_id"] = lease
        record["sent"] = now()
        try:
            api = self.apis.pop((node, patience_s), None) or Api(f"unix:{self.sockets[node]}", patience_s)
            status, value = (api.brk if verb == "break" else getattr(api, verb))(lock, **params)
            self.apis[node, patience_s] = api
            record.update(status=status, error=value.get("error"))
            if status == 200 and verb != "break":
                record["token"] = value["token"]
            if status == 200 and verb in ("acquire", "renew"):
                record["ttl_ms"], record["waited_ms"] = value["ttl_ms"], value.get("waited_ms", 0)
        except (OSError, Closed) as error:
            record["error"] = repr(error)
        except (AssertionError, ValueError, KeyError) as error:
            # a reply that breaks off is what a kill -9 leaves; any other that can't be read is a fault of its own
            record["error"] = str(error)[:300]
            record["malformed"] = not record["error"].startswith("closed inside")
        record["got"] = now()
        self.history.add("call", **record)
        return record

    def acquire(self, lock, ttl_ms=None, tries=3, **params):
        """A lease, by asking again under the same id as long as the outcome is unknown; None if there is none."""
        lease = str(uuid.UUID(int=self.dice.getrandbits(128), version=4))
        ttl_ms = ttl_ms or self.dice.choice((200, 500, 1000, 2000, 4000, 8000))
        wait_ms = self.dice.choice((0, 0, 200, 1000, 3000))
        for _ in range(tries):
            record = self.call("acquire", lock, lease=lease, ttl_ms=ttl_ms, wait_ms=wait_ms, owner=f"c{self.number}", **params)
            if record["status"] == 200:
                return record
            if record["status"] in (409, 429) or self.stop.is_set():
                return None
            self.pause(0.02, 0.3)
        self.call("release", lock, lease=lease)
        return None

    def terms(self, often):
        """What is asked of some leases: that nobody is granted right after them, or that they end by themselves."""
        terms = {}
        if self.dice.random() < often:
            terms["lock_delay_ms"] = self.dice.choice((200, 700, 2000))
        if self.dice.random() < often:
            terms["max_hold_ms"] = self.dice.choice((1000, 2500))
        return terms

    def write(self, lock, record):
        self.registers[lock].write(record["lease"], record["token"])

    # ---- scenes

    def hold(self, lock):
        """What most do: take, work, give back."""
        lease = self.acquire(lock)
        if lease:
            self.write(lock, lease)
            self.pause(0.0, min(0.15, lease["ttl_ms"] / 1000))
            self.write(lock, lease)
            self.call("release", lock, lease=lease["lease"])

    def keep(self, lock):
        """A long lease and no renewal: whatever is lost meanwhile, it has to be put back."""
        lease = self.acquire(lock, ttl_ms=8000)
        if lease:
            self.write(lock, lease)
            self.pause(1.0, 6.0)
            self.write(lock, lease)
            self.call("release", lock, lease=lease["lease"])

    def renew_often(self, lock):
        """A long work that renews, through whatever node answers, and also when a renewal failed."""
        lease = self.acquire(lock, ttl_ms=self.dice.choice((1000, 2000, 5000)), **self.terms(0.3))
        for _ in range(self.dice.randrange(2, 12) if lease else 0):
            self.pause(0.05, 0.4)
            record = self.call("renew", lock, lease=lease["lease"], ttl_ms=self.dice.choice((1000, 3000, 6000)))
            if record["status"] == 410 or self.stop.is_set():
                return
            self.write(lock, lease)
        if lease:
            self.call("release", lock, lease=lease["lease"])

    def stall(self, lock):
        """Sleeps over the end of its lease, then goes on as if nothing had been."""
        lease = self.acquire(lock, ttl_ms=self.dice.choice((100, 300, 700)), **self.terms(0.3))
        if lease:
            self.write(lock, lease)
            self.pause(lease["ttl_ms"] / 1000, lease["ttl_ms"] / 1000 + 0.5)
            self.write(lock, lease)
            verb = self.dice.choice(("renew", "release"))
            self.call(verb, lock, lease=lease["lease"], **({"ttl_ms": 500} if verb == "renew" else {}))

    def leave(self, lock):
        """Takes the lock and is not heard of again."""
        lease = self.acquire(lock, ttl_ms=self.dice.choice((200, 800, 2000)), **self.terms(0.3))
        if lease:
            self.write(lock, lease)

    def vanish(self, lock):
        """Goes away while it waits, or just before the answer; comes back for it under the same lease id, or doesn't."""
        lease = str(uuid.UUID(int=self.dice.getrandbits(128), version=4))
        record = self.call("acquire", lock, lease=lease, ttl_ms=2000, wait_ms=3000, patience_s=self.dice.choice((0.01, 0.05, 0.3)))
        if record["status"] is None and self.dice.random() < 0.7:
            record = self.call("acquire", lock, lease=lease, ttl_ms=2000, wait_ms=1000)
        if record["status"] == 200:
            self.write(lock, record)
            self.call("release", lock, lease=lease)

    def repeat(self, lock):
        """Asks twice for what it has, at two nodes."""
        lease = self.acquire(lock, ttl_ms=2000, **self.terms(0.2))
        if lease:
            again = self.call("acquire", lock, lease=lease["lease"], ttl_ms=self.dice.choice((500, 3000)))
            self.write(lock, again if again["status"] == 200 else lease)
            self.call("release", lock, lease=lease["lease"])
            self.call("release", lock, lease=lease["lease"])
            self.call("renew", lock, lease=lease["lease"], ttl_ms=1000)

    def stranger(self, lock):
        """Tries a lease id that it made up; seldom breaks the lock."""
        lease = str(uuid.UUID(int=self.dice.getrandbits(128), version=4))
        verb = self.dice.choice(("renew", "release"))
        self.call(verb, lock, lease=lease, **({"ttl_ms": 1000} if verb == "renew" else {}))
        if self.dice.random() < 0.1:
            self.call("break", lock, reason="chaos")

    def wander(self, lock):
        """Takes at one node, renews at a second, gives back at a third."""
        nodes = self.dice.sample(range(len(self.sockets)), 3)
        lease = self.acquire(lock, node=nodes[0], ttl_ms=3000, **self.terms(0.2))
        if lease:
            self.pause(0.0, 0.2)
            self.call("renew", lock, nodes[1], lease["lease"], ttl_ms=3000)
            self.write(lock, lease)
            self.pause(0.0, 0.2)
            self.call("release", lock, nodes[2], lease["lease"])


def _wait(event, parent):
    """Until the parent sets it. A parent that was killed sets nothing."""
    while not event.wait(1.0):
        if os.getppid() != parent:
            os._exit(1)


def _run(count, seed, sockets, locks, path, told_to_start, told_to_stop):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to stop
    parent = os.getppid()
    history = History(path)
    registers = {lock: Register(lock, history) for lock in locks}
    stop = threading.Event()
    died = []

    def play(client):
        try:
            client.run()
        except BaseException as error:  # a client that died must be seen
            died.append(client.number)
            history.add("note", what="client died", client=client.number, error=repr(error))
            raise

    threads = [threading.Thread(target=play, args=(Client(i, seed, sockets, registers, history, stop),), daemon=True) for i in range(count)]
    _wait(told_to_start, parent)
    for thread in threads:
        thread.start()
    _wait(told_to_stop, parent)
    stop.set()
    end = time.monotonic() + 4 * PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    sys.exit(1 if died or any(thread.is_alive() for thread in threads) else 0)


class Crowd:
    """All clients, as one process beside the one that makes the faults, so that neither holds the other up."""

    def __init__(self, count, seed, sockets, locks, path):
        context = multiprocessing.get_context("fork")
        self.start_event, self.stop_event = context.Event(), context.Event()
        self.process = context.Process(target=_run, args=(count, seed, sockets, locks, path, self.start_event, self.stop_event), daemon=True)

    def fork(self):
        self.process.start()

    def start(self):
        self.start_event.set()

    def stop(self, deadline_s=30.0):
        self.stop_event.set()
        self.process.join(deadline_s)
        assert self.process.exitcode == 0, f"the clients did not end well: {self.process.exitcode}"

    def kill(self):
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
