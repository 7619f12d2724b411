"""A group of redis-servers under real sentinels: Group(world).start(), then failover(), cut_replication() and so on.

Replication goes by a user of its own, so that a test can cut it and leave everything else as it is: the sentinels still see both servers.
"""

import os
import socket
import threading

from pawltest.process import Process, free_port
from pawltest.redis import RedisServer, RespConn, RespError
from pawltest.wait import until

MASTER = "mymaster"
DOWN_AFTER_MS = 1000


class SentinelServer(Process):
    """One sentinel. Its configuration file is its memory and survives restarts."""

    def __init__(self, master, quorum, password=None):
        super().__init__("sentinel")
        self.host = "127.0.0.1"
        self.port = None
        self.master = master
        self.quorum = quorum
        self.password = password

    def start(self):
        path = os.path.join(self.folder, "sentinel.conf")
        for _ in range(5):
            if self.port is None:
                self.port = free_port()
                self._write(path)
            self.start_process(["redis-server", path, "--sentinel"])
            until(lambda: not self.running() or self._answers(), what="the sentinel answers")
            if self.running():
                return self
            assert self.generation < 5 and "in use" in self.stdout(), f"the sentinel ended at once:\n{self.stdout()[-2000:]}"
            self.port = None
        raise AssertionError("the sentinel found no port")

    def _write(self, path):
        lines = [
            f"port {self.port}",
            f"bind {self.host}",
            f"dir {self.folder}",
            f"sentinel monitor {MASTER} {self.master.host} {self.master.port} {self.quorum}",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER} 4000",
        ]
        if self.password:
            lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
        if self.master.password:
            lines.append(f"sentinel auth-pass {MASTER} {self.master.password}")
        with open(path, "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")

    def _answers(self):
        try:
            return self.command("PING") == "PONG"
        except OSError:
            return False

    def command(self, *args):
        conn = RespConn((self.host, self.port))
        try:
            if self.password:
                conn.command("AUTH", self.password)
            return conn.command(*args)
        finally:
            conn.close()

    def names(self):
        """The port of the master, as this sentinel sees it."""
        return int(self.command("SENTINEL", "get-master-addr-by-name", MASTER)[1])

    def knows(self, replicas, sentinels):
        told = self.command("SENTINEL", "master", MASTER)
        told = dict(zip(told[::2], told[1::2]))
        seen = self.command("SENTINEL", "replicas", MASTER)
        good = sum(dict(zip(one[::2], one[1::2]))["flags"] == "slave" for one in seen)
        return good >= replicas and int(told["num-other-sentinels"]) >= sentinels - 1 and told["flags"] == "master"

    def stop(self):
        if self.running():
            self.sigcont()
            self.child.terminate()
            self.wait()

    def close(self, keep_log=False):
        self.kill9()
        if not keep_log:
            self.remove_folder()


class Group:
    """One master, its replicas and its sentinels."""

    def __init__(self, world, replicas=1, sentinels=3, password=None, sentinel_password=None, options=None, make=RedisServer):
        """options: more of them for each redis-server, which make(options=..., password=...) makes."""
        options = {"repl-diskless-sync-delay": 0, "repl-ping-replica-period": 1, "masteruser": "copier", "masterauth": "copy", **(options or {})}
        self.servers = [make(options=options, password=password) for _ in range(1 + replicas)]
        self.sentinels = [SentinelServer(self.servers[0], max(1, sentinels // 2 + 1), sentinel_password) for _ in range(sentinels)]
        for thing in self.servers + self.sentinels:
            world.keep(thing)

    def start(self, sentinels=True):
        for server in self.servers:
            server.start()
            self.allow_replication(server)
        for server in self.servers[1:]:
            server.command("REPLICAOF", self.servers[0].host, self.servers[0].port)
        self.wait_synced()
        self.wait_confirming(self.servers[0])
        return self.start_sentinels() if sentinels else self

    def start_sentinels(self):
        for sentinel in self.sentinels:
            sentinel.start()
        self.wait_known()
        return self

    @property
    def url(self):
        addresses = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"sentinel://{addresses}/{MASTER}"

    def allow_replication(self, server):
        server.forget_connection()  # a sentinel closes the clients of a server whose role it changes
        server.command("ACL", "SETUSER", "copier", "on", ">copy", "+psync", "+replconf", "+ping")

    @property
    def master(self):
        """As the first sentinel that runs names it."""
        port = next(sentinel for sentinel in self.sentinels if sentinel.running()).names()
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self):
        master = self.master
        return [server for server in self.servers if server is not master]

    def wait_synced(self):
        """Every replica that runs has what its master has."""

        def synced(server):
            try:
                told = server.info("replication")
            except (OSError, RespError):
                return False
            return told["role"] == "master" or (told["master_link_status"] == "up" and told["master_sync_in_progress"] == "0")

        until(lambda: all(synced(server) for server in self.servers if server.running()), what="replicas are in sync")

    def wait_confirming(self, master):
        """The replicas confirm what the master writes. A replica that has just got its copy does not yet, for up to a second."""

        def confirmed():
            master.command("PUBLISH", "a write", "")
            return master.command("WAIT", len(self.servers) - 1, 100) == len(self.servers) - 1

        until(confirmed, what="replicas confirm", every_s=0.05)

    def wait_known(self):
        """The sentinels know of everything and would agree to a failover."""
        count = len(self.servers) - 1

        def known():
            try:
                return all(sentinel.knows(count, len(self.sentinels)) for sentinel in self.sentinels if sentinel.running())
            except (OSError, RespError, KeyError):
                return False

        until(known, 60, "the sentinels know the group", every_s=0.1)

    def cut_replication(self):
        """Replicas stay behind from here on, and stay where the sentinels can promote them."""
        master = self.master
        master.forget_connection()
        master.command("ACL", "SETUSER", "copier", "off")
        master.command("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: master.info("replication")["connected_slaves"] == "0", what="no replica is connected")

    def failover(self):
        """Asks for one, and returns the new master when all sentinels name it. Sentinels may give one up (one of them turned the promoted server back
        before it had heard of the failover), so it is asked for until it has come."""
        before = self.master
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.running())

        def done():
            if self._all_name_another(before):
                return True
            try:
                if sentinel.names() == before.port:
                    sentinel.command("SENTINEL", "FAILOVER", MASTER)
            except RespError as error:
                assert "INPROG" in str(error) or "NOGOODSLAVE" in str(error), error
            return False

        until(done, 90, "the failover is over", every_s=0.1)
        return self.master

    def _all_name_another(self, before):
        return all(sentinel.names() != before.port for sentinel in self.sentinels if sentinel.running())

    def wait_other_master(self, before):
        # one whose clock seemed to jump, as it does on a busy machine, keeps still for half a minute
        until(lambda: self._all_name_another(before), 120, "the sentinels name another master", every_s=0.05)
        return self.master

    def settle(self):
        """Until the next failover can be asked for: everybody runs, replicates and is known."""
        for server in self.servers:
            if not server.running():
                server.start()
            self.allow_replication(server)

        def joined():  # to whoever is the master by then: on a busy machine the sentinels may fail over once more meanwhile
            try:
                return self.master.info("replication")["connected_slaves"] == str(len(self.servers) - 1)
            except (OSError, RespError):
                return False

        until(joined, 60, "the old master has become a replica", every_s=0.1)
        self.wait_synced()
        self.wait_known()


class FakeSentinel:
    """Answers every question with one address and one epoch, whatever the truth is. Speaks enough to be taken for a sentinel."""

    def __init__(self, host, port, epoch):
        self.told = (host, port, epoch)
        self.asked = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with sock, sock.makefile("rb") as source:
            try:
                while True:
                    count = int(source.readline()[1:])
                    words = [source.read(int(source.readline()[1:]) + 2)[:-2].lower() for _ in range(count)]
                    sock.sendall(self._answer(words))
            except (OSError, ValueError):
                pass

    def _answer(self, words):
        host, port, epoch = (str(part).encode() for part in self.told)
        if words[:2] == [b"sentinel", b"get-master-addr-by-name"]:
            self.asked += 1
            return b"*2\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in (host, port))
        if words[:2] == [b"sentinel", b"master"]:
            return b"*2\r\n$12\r\nconfig-epoch\r\n$%d\r\n%s\r\n" % (len(epoch), epoch)
        if words[0] == b"subscribe":
            return b"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
        if words[0] == b"ping":
            return b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
        return b"+OK\r\n"

    def close(self):
        self.listener.close()
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
