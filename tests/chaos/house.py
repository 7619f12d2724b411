"""The houses in which a chaos run takes place: clocks that can be set, redis-servers, nodes, and what lies between.

    House            one Redis, several pawlds, a proxy between each pawld and Redis
    SentinelHouse    a master and a replica under three sentinels; each pawld has a proxy with a door to every one of these five

A house has the same face for faults whatever it is made of:

    redis            the server that is the master
    losers(dice)     the servers that a loss of data takes away together
    start_redis(s)   starts a server that was killed, as what it was
    order(*command)  a command for the master
    calm()           one master, all agree about it, and whoever is its replica copies from it
    settling()       the steps until it is calm again after a fault of Redis
"""

import os
import re
import shutil
import struct
import subprocess
import threading

from chaos.history import now
from pawltest.pawld import Pawld
from pawltest.process import socket_folder
from pawltest.proxy import Proxy
from pawltest.redis import RedisServer, RespConn, RespError
from pawltest.sentinel import MASTER, Group
from pawltest.wait import until

ON_DISK = {"appendonly": "yes", "appendfsync": "always"}  # what was answered survives a kill -9


class Clock:
    """The wall clock of a Redis, which can be set (clock_shift.c). Without a C compiler it can't: `env` is None."""

    def __init__(self, folder):
        library, self.path = os.path.join(folder, "clock_shift.so"), os.path.join(folder, "clock_shift")
        self.shift_us, self._furthest = 0, float("-inf")
        self._write()
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock_shift.c")
        compiler = (os.environ.get("CC") or "cc").split()
        try:
            built = subprocess.run(compiler + ["-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", library, source], check=False)
            self.env = {**os.environ, "LD_PRELOAD": library, "CLOCK_SHIFT": self.path} if built.returncode == 0 else None
        except OSError:
            self.env = None

    def _write(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, struct.pack("q", self.shift_us), 0)
        os.close(fd)

    def shift(self, seconds):
        self._furthest = max(self._furthest, now() + self.shift_us / 1e6)
        self.shift_us += int(seconds * 1e6)
        self._write()

    def behind(self):
        """Has it been later already than it is now?"""
        return now() + self.shift_us / 1e6 < self._furthest


class ClockedRedis(RedisServer):
    """A redis-server that looks at that clock."""

    def __init__(self, clock, **how):
        super().__init__(**how)
        self.clock = clock

    def start_process(self, argv, env=None, cwd=None):
        super().start_process(argv, self.clock.env if env is None else env, cwd)


class House:
    """Redis with all writes on disk before they are answered, nodes that reach it through a proxy each and listen at a path that stays."""

    def __init__(self, nodes, history, window):
        self.history = history
        self.folder = socket_folder()
        self.clock = Clock(self.folder)
        self.servers = []
        self.proxies, self.nodes = [], []
        self.sockets = [os.path.join(self.folder, f"n{i}.sock") for i in range(nodes)]
        self.window = window
        self.problems = []
        self.build()

    # ---- what a house of another kind has of its own

    def build(self):
        self.servers = [ClockedRedis(self.clock, options=ON_DISK)]

    def start_stores(self):
        self.redis.start()

    def connect(self):
        """A proxy for a node, and the URL by which the node reaches Redis through it."""
        proxy = Proxy(self.redis.address).start()
        return proxy, proxy.redis_url

    @property
    def redis(self):
        return self.servers[0]

    def losers(self, _dice):
        return [self.redis]

    def start_redis(self, server):
        server.start()

    def calm(self):
        return True

    def settling(self):
        yield from ()

    def close_stores(self, keep):
        for server in self.servers:
            server.close(keep_log=keep)

    def processes(self):
        return self.servers + self.nodes

    # ---- what is the same in all

    def start(self):
        self.start_stores()
        for path in self.sockets:
            proxy, url = self.connect()
            self.proxies.append(proxy)
            self.nodes.append(Pawld(url, ["--recovery-window", self.window, "--drain-timeout", "1s"], listen=[f"unix:{path}"]))
        for node in self.nodes:
            node.start(wait=None)
        self.wait_ready()
        return self

    def order(self, *command):
        """Again on a new connection if that of an earlier order has died meanwhile."""
        return order_to(self.redis, *command)

    def keys(self):
        """What residue() asks of whoever is master."""
        return self.order("KEYS", "*")

    def ready(self):
        return all(node.running() and node.addresses() and node.ready() for node in self.nodes)

    def wait_ready(self, deadline_s=60.0):
        until(self.ready, deadline_s, "every node is ready")

    def start_node(self, i):
        self.check_node(i)
        self.nodes[i].start(wait=None)
        self.history.add("note", what="node started", node=i, pid=self.nodes[i].pid, at=now())

    def check_node(self, i):
        """A process that has ended: as it should, and without a report of a sanitizer? Its log is kept in any case."""
        try:
            self.nodes[i].check()
        except AssertionError as error:
            self.problems.append(f"node {i}: {error}")

    @staticmethod
    def erase(server):
        """Leaves nothing of what a dead Redis had on disk."""
        for name in ("appendonlydir", "dump.rdb"):
            path = os.path.join(server.folder, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)

    def finish(self):
        """Ends all nodes in good order; their faults are among the problems."""
        for i, node in enumerate(self.nodes):
            try:
                node.finish()
            except AssertionError as error:
                self.problems.append(f"node {i}: {error}")

    def close(self, keep):
        for node in self.nodes:
            node.close(keep_log=keep)
        for proxy in self.proxies:
            proxy.close()
        self.close_stores(keep)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def folders(self):
        return [self.folder] + [process.folder for process in self.processes()]


class SentinelHouse(House):
    """Sentinels name the servers by their own addresses, so a node would go round its proxy: what a sentinel says is changed on the way, and names the
    doors of that node's proxy instead. A node's proxy is all its network; a fault of it is a fault of the way to servers and sentinels alike, unless
    single doors are shut."""

    def build(self):
        self.group = Group(_Nobody(), options=ON_DISK, make=lambda **how: ClockedRedis(self.clock, **how))
        self.servers, self.sentinels = self.group.servers, self.group.sentinels
        self.doors = []  # for each node: (one for each server, one for each sentinel)
        self.masters = Masters(self)

    def start_stores(self):
        self.group.start()
        self.masters.start()

    def connect(self):
        proxy = Proxy(self.servers[0].address)
        servers = [proxy.door(server.address) for server in self.servers]
        ports = {b"%d" % server.port: b"%d" % door.address[1] for server, door in zip(self.servers, servers)}
        assert all(len(port) == len(other) for port, other in ports.items()), "else a length before it would be wrong"
        port_line = re.compile(rb"(?m)^(%s)\r$" % b"|".join(ports))
        sentinels = [proxy.door((sentinel.host, sentinel.port), lambda data: port_line.sub(lambda found: ports[found[1]] + b"\r", data))
                     for sentinel in self.sentinels]
        self.doors.append((servers, sentinels))
        proxy.start()
        return proxy, "sentinel://%s/%s" % (",".join("%s:%d" % door.address for door in sentinels), MASTER)

    @property
    def redis(self):
        return self.masters.master

    @property
    def replica(self):
        return next(server for server in self.servers if server is not self.redis)

    def losers(self, dice):
        """Both, or the master alone: if it is back before the sentinels miss it, its replica copies the nothing that it has."""
        return [self.redis, self.replica] if dice.random() < 0.5 else [self.redis]

    def start_redis(self, server):
        server.start()
        until(server.loaded, what="redis has its data")
        self.group.allow_replication(server)
        if server is not self.redis:
            order_to(server, "REPLICAOF", self.redis.host, self.redis.port)

    def start_deposed(self, server):
        """As it was started first: a master, until the sentinels see to it."""
        server.start()
        until(server.loaded, what="redis has its data")
        self.group.allow_replication(server)

    def cut_replication(self):
        """The replica stays behind from here on, and stays where the sentinels can promote it."""
        self.order("ACL", "SETUSER", "copier", "off")
        self.order("CLIENT", "KILL", "TYPE", "replica")

    def allow_replication(self):
        for server in self.servers:
            if server.running():
                self.group.allow_replication(server)

    def ask_failover(self, dice):
        """Of one sentinel; what it answers shows in who is named."""
        sentinel = dice.choice([sentinel for sentinel in self.sentinels if answering(sentinel)])
        try:
            if sentinel.names() == self.redis.port:
                sentinel.command("SENTINEL", "FAILOVER", MASTER)
        except (OSError, RespError):
            pass  # one is going on, or the replica is not good enough yet: it is asked again

    def calm(self):
        return self.masters.calm

    def settling(self):
        seen, end = self.masters.looks, now() + 90
        while not (self.masters.calm and self.masters.looks > seen + 2):
            if now() > end:
                self.problems.append("servers and sentinels do not come to agree though nothing is in their way")
                return
            yield 0.1

    def close_stores(self, keep):
        self.masters.stop()
        for sentinel in self.sentinels:
            sentinel.close(keep_log=keep)
        super().close_stores(keep)

    def processes(self):
        return super().processes() + self.sentinels


class _Nobody:
    """Keeps nothing: a house closes what is in it itself."""

    def keep(self, thing):
        return thing


def order_to(server, *command):
    try:
        return server.command(*command)
    except OSError:
        server.forget_connection()
        return server.command(*command)


def answering(process):
    """Does it run, and is it not frozen?"""
    try:
        return process.running() and process.proc_stat()[0] != "T"
    except (OSError, IndexError):
        return False


class Masters:
    """Looks all the time whom the sentinels name and what the servers say of themselves, and writes into the history what a fault, or the sentinels by
    themselves, made of that. Nobody else can say when a failover has begun: all that is sure is when all agreed for the last time, and when again.

        switch          another master is named by all: with it, what the replica had not been sent yet is lost
        two_masters     not all agreed who is master, or two said that they are: who was cut off or asleep meanwhile may have followed the wrong one
    """

    EVERY_S = 0.15

    def __init__(self, house):
        self.house = house
        self.master = house.servers[0]
        self.calm, self.looks = False, 0
        self._agreed_at = self._sure_at = now()
        self._disputed = False
        self._number = 0
        self._conns = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="masters", daemon=True)

    def start(self):
        self._agreed_at = self._sure_at = now()
        self._thread.start()

    def stop(self):
        """Also if it was never started. What is disputed still, stays so in the history."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)
            if self._disputed:
                self._write("two_masters", self._sure_at, None)
        for conn in self._conns.values():
            conn.close()

    def _run(self):
        while not self._stop.wait(self.EVERY_S):
            self._look()

    def _look(self):
        started = now()
        named = {self._named(sentinel) for sentinel in self.house.sentinels} - {None}
        roles = {server: self._role(server) for server in self.house.servers}
        masters = [server for server in self.house.servers if roles[server] == "master"]
        # without any sentinel nothing changes
        named = next((server for server in self.house.servers if {server.port} == named), None) if named else self.master
        if named is None or len(masters) > 1:
            self._disputed = True
        if named in masters:
            if named is not self.master:
                self._write("switch", self._agreed_at, now(), loss=True, master=named.port)
                self._disputed = True
                self.master = named
            self._agreed_at = started
        others = [roles[server] for server in self.house.servers if server is not named]
        self.calm = masters == [named] and all(role in ("connected", "dead") for role in others)
        if masters == [named] and "silent" not in others:
            if self._disputed:
                self._write("two_masters", self._sure_at, now())
            self._disputed = False
            self._sure_at = started
        self.looks += 1

    def _named(self, sentinel):
        told = self._ask(sentinel, "SENTINEL", "get-master-addr-by-name", MASTER)
        return int(told[1]) if isinstance(told, list) else None

    def _role(self, server):
        """master, dead, silent, or of a replica the state of its copying: connected, or not yet."""
        if not server.running():
            return "dead"
        told = self._ask(server, "ROLE")
        if not isinstance(told, list):
            return "silent"
        return told[3] if told[0] == "slave" else told[0]

    def _ask(self, process, *command):
        """None without an answer. On connections of its own: a server's others belong to whoever makes the faults."""
        if not answering(process):
            return None
        try:
            if process not in self._conns:
                self._conns[process] = RespConn((process.host, process.port), 1.0)
            return self._conns[process].command(*command)
        except (OSError, RespError):
            conn = self._conns.pop(process, None)
            if conn:
                conn.close()
            return None

    def _write(self, what, start, stop, **more):
        self._number += 1
        record = {"id": f"m{self._number}", "what": what, "node": None, "before": start}
        self.house.history.add("fault", phase="begin", after=start, **record, **more)
        if stop is not None:
            self.house.history.add("fault", phase="end", after=stop, **record)
