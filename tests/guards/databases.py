"""Real databases for the guards' tests, each private to the test run: a folder of its own, a unix socket, no port, no configuration of
the machine.

    PostgresServer().start()      initdb and postgres, from Debian's postgresql
    MariadbServer().start()       mariadb-install-db and mariadbd, from Debian's mariadb-server-core

PostgreSQL refuses to be started by root, so where the tests run as root the servers run as nobody. A Session is the database's own
command line with its input and output on pipes: what a test gives it is what a person would type, and a statement that has to wait for a
lock can be left waiting.
"""

import glob
import os
import re
import select
import shutil
import signal
import subprocess
import time

from pawltest.process import Process
from pawltest.wait import until

GUARDS = os.path.join(os.environ.get("TOP_SRCDIR", os.path.join(os.path.dirname(__file__), "..", "..")), "client", "guards")

# What a transaction is told that should be run again: serialization failure, deadlock; MariaDB: a record that changed since the snapshot.
RETRY = ("40001", "40P01", "HY000-1020")


def guard_file(*path):
    with open(os.path.join(GUARDS, *path), encoding="utf-8") as f:
        return f.read()


def _as_nobody():
    """What to put before a server's argv."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    assert setpriv, "as root these tests need setpriv (util-linux), since PostgreSQL refuses to run as root"
    # the kernel forgets --pdeathsig at a change of user, so it comes after that
    return [setpriv, "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", setpriv, "--pdeathsig", "KILL"]


class Result:
    """What a statement, or several, answered: rows as text, and the first error, if there was one."""

    def __init__(self, rows, code, text):
        self.rows = rows
        self.code = code  # SQLSTATE, or None
        self.text = text

    @property
    def value(self):
        assert self.code is None and len(self.rows) == 1, self
        return self.rows[0]

    def __repr__(self):
        return f"<{self.code or 'ok'} {self.text.strip()!r}>"


class Session:
    """One connection. run(sql) answers; or start(sql), and answered() and finish() later."""

    def __init__(self, server, argv, echo, error):
        self.server = server
        self.echo = echo  # the statement that prints a line, with %s for the line
        self.error = error  # what an error looks like, with its SQLSTATE in the group "code"
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.buffer = b""
        self.count = 0
        self.waiting = None

    def start(self, sql):
        assert self.waiting is None, f"still waiting for {self.waiting}"
        self.count += 1
        self.waiting = f"--- end {self.count} ---"
        self.child.stdin.write((sql.rstrip() + "\n" + self.echo % self.waiting + "\n").encode("utf-8"))

    def answered(self, for_s=0.0):
        """Has the answer come (within so many seconds)?"""
        end = time.monotonic() + for_s
        while (self.waiting + "\n").encode() not in self.buffer:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return False
            data = os.read(self.child.stdout.fileno(), 65536)
            if not data:
                raise ConnectionError(f"the session has ended: {self.buffer!r}")
            self.buffer += data
        return True

    def finish(self, deadline_s=30.0):
        assert self.answered(deadline_s), f"no answer within {deadline_s} s: {self.buffer!r}"
        raw, _, self.buffer = self.buffer.partition((self.waiting + "\n").encode())
        self.waiting = None
        text = raw.decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line]
        error = next(filter(None, map(self.error.search, lines)), None)
        code = None
        if error:
            code = error["code"]
            if code == "HY000" and "number" in error.groupdict():
                code = f"HY000-{error['number']}"
        return Result(lines, code, text)

    def run(self, sql, deadline_s=30.0):
        self.start(sql)
        return self.finish(deadline_s)

    def must(self, sql):
        result = self.run(sql)
        assert result.code is None, (sql, result)
        return result

    def kill9(self):
        """The client dies where it is."""
        self.child.kill()
        self.child.wait()

    def close(self):
        self.kill9()
        self.child.stdin.close()
        self.child.stdout.close()


class Database(Process):
    """What the two servers share."""

    levels = ()

    def __init__(self, name):
        super().__init__(name)
        self.data = os.path.join(self.folder, "data")
        self.sessions = []
        os.chmod(self.folder, 0o755)
        os.mkdir(self.data, 0o700)
        self.socket_folder = os.path.join(self.folder, "s")
        os.mkdir(self.socket_folder, 0o755)
        if os.getuid() == 0:
            shutil.chown(self.data, "nobody", "nogroup")
            shutil.chown(self.socket_folder, "nobody", "nogroup")

    def _prepare(self, argv):
        done = subprocess.run(_as_nobody() + argv, cwd=self.data, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120, check=False)
        assert done.returncode == 0, f"{argv[0]} failed:\n{done.stdout.decode('utf-8', 'replace')[-3000:]}"

    def _serve(self, argv):
        self.start_process(_as_nobody() + argv, cwd=self.data)
        until(lambda: not self.running() or self._answers(), 60, f"{self.name} answers")
        assert self.running(), f"{self.name} ended at once:\n{self.stderr()[-3000:]}"
        return self

    def _answers(self):
        done = subprocess.run(self.client_argv(), input=b"SELECT 1;\n", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30,
            check=False)
        return done.returncode == 0 and done.stdout.strip() == b"1"

    def script(self, sql):
        """Runs a script that must succeed, as a person would: the client's exit status says so."""
        done = subprocess.run(self.client_argv(stop=True), input=sql.encode("utf-8"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=60, check=False)
        assert done.returncode == 0, done.stdout.decode("utf-8", "replace")

    def session(self, level=None):
        """level: an isolation level, e.g. "SERIALIZABLE"; None is the server's default."""
        session = self._session()
        self.sessions.append(session)
        if level is not None:
            session.must(self.set_level % level)
        return session

    def close_sessions(self):
        for session in self.sessions:
            session.close()
        self.sessions = []

    def close(self, keep_log=False):
        self.close_sessions()
        if self.running():
            self.stop()
        if not keep_log:
            self.remove_folder()


class PostgresServer(Database):
    default_level = "READ COMMITTED"
    levels = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
    set_level = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL %s;"

    @staticmethod
    def missing():
        """Why there can be no such server here, or None."""
        if not PostgresServer.folder_of_programs():
            return "no PostgreSQL server (Debian: apt-get install postgresql)"
        return None if shutil.which("psql") else "no psql (Debian: apt-get install postgresql-client)"

    @staticmethod
    def folder_of_programs():
        found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
        if found:
            return os.path.dirname(max(found, key=lambda path: int(path.split("/")[4])))
        initdb = shutil.which("initdb")
        return initdb and os.path.dirname(initdb)

    def __init__(self):
        super().__init__("postgres")
        self.programs = self.folder_of_programs()

    def start(self):
        if not os.listdir(self.data):
            self._prepare([f"{self.programs}/initdb", "--no-sync", "--auth=trust", "--username=pawltest", "--encoding=UTF8",
                "--locale=C", "-D", self.data])
        settings = {
            "listen_addresses": "", "unix_socket_directories": self.socket_folder, "fsync": "off", "synchronous_commit": "off",
                "autovacuum": "off",
            "deadlock_timeout": "200ms", "shared_buffers": "16MB", "max_connections": "30", "log_min_messages": "panic",
        }
        argv = [f"{self.programs}/postgres", "-D", self.data]
        for key, value in settings.items():
            argv += ["-c", f"{key}={value}"]
        return self._serve(argv)

    def client_argv(self, stop=False):
        return ["psql", "-X", "-q", "-A", "-t", "-h", self.socket_folder, "-U", "pawltest", "-d", "postgres", "-v",
            f"ON_ERROR_STOP={int(stop)}",
            "-v", "VERBOSITY=verbose"]

    def _session(self):
        return Session(self, self.client_argv(), r"\echo '%s'", re.compile(r"(?:ERROR|FATAL): +(?P<code>[0-9A-Z]{5}): "))

    def connection_id(self, session):
        return session.must("SELECT pg_backend_pid();").value

    def is_blocked(self, admin, connection_id):
        return admin.must(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = {connection_id};").value == "1"

    def stop(self):
        self.signal(signal.SIGINT)
        self.wait(60)

    def crash(self):
        """At once, with nothing written that isn't there yet (SIGKILL would leave shared memory behind)."""
        self.signal(signal.SIGQUIT)
        self.wait(60)


class MariadbServer(Database):
    default_level = "REPEATABLE READ"
    levels = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
    set_level = "SET SESSION TRANSACTION ISOLATION LEVEL %s;"

    @staticmethod
    def missing():
        if not MariadbServer.program() or not shutil.which("mariadb-install-db"):
            return "no MariaDB server (Debian: apt-get install mariadb-server-core)"
        return None if shutil.which("mariadb") else "no mariadb command (Debian: apt-get install mariadb-client-core)"

    @staticmethod
    def program():
        return shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin")

    def __init__(self):
        super().__init__("mariadb")

    def start(self):
        if not os.listdir(self.data):
            self._prepare(["mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal",
                "--skip-test-db",
                self.own_tmpdir(), "--innodb-log-file-size=8M"])
        return self._serve([self.program(), "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket_folder}/db",
            "--skip-networking", self.own_tmpdir(),
            f"--pid-file={self.data}/pid", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M",
                "--innodb-flush-log-at-trx-commit=2",
            "--innodb-lock-wait-timeout=20", "--skip-log-bin", "--skip-name-resolve", "--innodb-use-native-aio=0"])

    def own_tmpdir(self):
        """In /tmp each server that starts deletes the temporary tables of the others, and who misses one aborts."""
        return f"--tmpdir={self.socket_folder}"

    def client_argv(self, stop=False):
        argv = ["mariadb", "--no-defaults", f"--socket={self.socket_folder}/db", "--user=root", "--batch", "--skip-column-names",
            "--unbuffered",
            "--skip-reconnect", "--default-character-set=utf8mb4"]
        return argv if stop else argv + ["--force"]

    def script(self, sql, database="test"):
        super().script(f"CREATE DATABASE IF NOT EXISTS {database}; USE {database};\n" + sql)

    def _session(self, create=True):
        session = Session(self, self.client_argv(), "SELECT '%s';", re.compile(r"^ERROR (?P<number>[0-9]+) \((?P<code>[0-9A-Z]{5})\)"))
        session.must(("CREATE DATABASE IF NOT EXISTS test; " if create else "") + "USE test;")
        return session

    def connection_id(self, session):
        return session.must("SELECT CONNECTION_ID();").value

    def is_blocked(self, admin, connection_id):
        # of all connections: innodb_trx, which could tell one of them, is a copy that isn't renewed while somebody keeps looking
        return admin.must("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits';").value.split()[1] == "1"

    def stop(self):
        self.signal(signal.SIGTERM)
        self.wait(60)

    def crash(self):
        self.kill9()


def readme_blocks(folder, language):
    """The fenced blocks of a guard's README."""
    return re.findall(rf"^```{language}\n(.*?)^```$", guard_file(folder, "README.md"), re.M | re.S)
