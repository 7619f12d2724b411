#!/usr/bin/env python3
"""The load on ZooKeeper, by kazoo's Lock: what somebody who uses ZooKeeper from Python gets. Prints what tests/bench/load prints.

kazoo is Python and threads, so it and not ZooKeeper is what ends the throughput; the figures are those of the pair. Each client uses one lock
over and over: ZooKeeper keeps a node for each name that was ever used, and kazoo does not remove it.
"""

import argparse
import json
import queue
import sys
import threading
import time

from kazoo.client import KazooClient

DEADLINE = 30
SESSIONS_MAX = 32


def quantiles(values_ns):
    values = sorted(values_ns)
    if not values:
        return {"count": 0, "mean": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0}

    def at(q):
        return round(values[min(len(values) - 1, max(0, int(q * len(values) + 0.999999) - 1))] / 1000, 1)
    return {"count": len(values), "mean": round(sum(values) / len(values) / 1000, 1), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99),
            "p999": at(0.999), "max": at(1)}


def sessions(to, count):
    clients = [KazooClient(hosts=to, timeout=60) for _ in range(count)]
    for event in [client.start_async() for client in clients]:
        if not event.wait(DEADLINE):
            raise TimeoutError("no session with ZooKeeper")
    return clients


def cycles(clients, seconds, warm_up):
    """Every client by a thread of its own: acquire, release, a lock of its own."""
    begin = time.monotonic_ns() + int(warm_up * 1e9)
    end = begin + int(seconds * 1e9)
    taken = [[] for _ in clients]
    faults = []

    def work(number, client):
        lock = client.Lock(f"/bench/cycle/{number}", "bench")
        try:
            while True:
                started = time.monotonic_ns()
                lock.acquire(timeout=DEADLINE)
                lock.release()
                now = time.monotonic_ns()
                if now >= end:
                    return
                if started >= begin:
                    taken[number].append(now - started)
        except Exception as e:  # a thread's fault has to reach the report
            faults.append(repr(e))
    threads = [threading.Thread(target=work, args=(i, c)) for i, c in enumerate(clients)]
    for t in threads:
        t.start()
    time.sleep(max(0, (begin - time.monotonic_ns()) / 1e9))
    cpu = time.process_time_ns()
    time.sleep(max(0, (end - time.monotonic_ns()) / 1e9))
    cpu = time.process_time_ns() - cpu
    for t in threads:
        t.join()
    flat = [ns for each in taken for ns in each]
    return {"mode": "kazoo", "connections": len(clients), "seconds": seconds, "cycles": len(flat), "rate": round(len(flat) / seconds, 1),
            "cycle_us": quantiles(flat), "own_cpu_us": cpu / 1000, "cpu_us": []}, faults


class Waiter(threading.Thread):
    """Takes the lock once a wave, tells when, and releases when it is told to."""

    def __init__(self, client, granted):
        super().__init__(daemon=True)
        self.lock = client.Lock("/bench/handover", "bench")
        self.granted = granted
        self.begin = threading.Semaphore(0)
        self.give = threading.Semaphore(0)
        self.released_ns = 0
        self.over = False

    def run(self):
        try:
            while self.begin.acquire() and not self.over:
                self.lock.acquire(timeout=DEADLINE)
                self.granted.put((time.monotonic_ns(), self))
                self.give.acquire()
                self.released_ns = time.monotonic_ns()
                self.lock.release()
        except Exception as e:
            self.granted.put((repr(e), self))


def handover(clients, count, seconds):
    """Waves of hand-overs, as in handover.c."""
    granted = queue.Queue()
    waiters = [Waiter(clients[i % len(clients)], granted) for i in range(count + 1)]
    for w in waiters:
        w.start()
    passes, waves = [], 0
    holder = waiters[0]
    holder.begin.release()
    granted.get(timeout=DEADLINE)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for w in waiters:
            if w is not holder:
                w.begin.release()
        limit = time.monotonic() + DEADLINE
        while len(clients[0].get_children("/bench/handover")) <= count:
            if time.monotonic() > limit:
                raise TimeoutError("not all waiters are there")
            time.sleep(0.002)
        time.sleep(0.02)
        for _ in range(count):
            holder.give.release()
            when, new = granted.get(timeout=DEADLINE)
            if isinstance(when, str):
                return {}, [when]
            passes.append(when - holder.released_ns)
            holder = new
        waves += 1
    for w in waiters:
        w.over = True
        w.begin.release()
    holder.give.release()
    for w in waiters:
        w.join(DEADLINE)
    return {"mode": "handover", "by": "kazoo", "waiters": count, "handovers": len(passes), "waves": waves, "inspections": 0,
            "handover_us": quantiles(passes), "cpu_us": []}, []


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("mode", choices=("cycles", "handover"))
    p.add_argument("--to", required=True, metavar="HOST:PORT")
    p.add_argument("--connections", type=int, default=1, help="clients; of handover: waiters")
    p.add_argument("--seconds", type=float, default=1)
    p.add_argument("--warm-up", type=float, default=0)
    options = p.parse_args()
    count = options.connections
    clients = sessions(options.to, count if options.mode == "cycles" else min(count + 1, SESSIONS_MAX))
    if options.mode == "cycles":
        result, faults = cycles(clients, options.seconds, options.warm_up)
    else:
        result, faults = handover(clients, count, options.seconds)
    for client in clients:
        client.stop()
    result.update(errors=len(faults), first_error=faults[0] if faults else None)
    print(json.dumps(result))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
