"""Certificates made by the openssl command, and a TLS client that says exactly what a test wants said.

    authority().make("server", san="IP:127.0.0.1")     a certificate of the tests' own authority: .cert, .key
    TlsSocket(sock, context(), "127.0.0.1")            the client's end over a connected socket

A socket of the ssl module closes, half-closes and resets in its own way. Here each is told apart: close_notify, FIN and RST are three methods. The rest looks like
a socket, as far as the tests use one, with MSG_PEEK and non-blocking reads.
"""

import atexit
import functools
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
from types import SimpleNamespace

SERVER_NAMES = "IP:127.0.0.1,IP:::1,DNS:localhost"


def _openssl(*args, **how):
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, **how)
    assert done.returncode == 0, f"openssl {args}: {done.stderr}"
    return done.stdout


class Authority:
    """Who vouches for certificates. `path` is what it is trusted by."""

    def __init__(self, name="tests' own authority"):
        self.folder = tempfile.mkdtemp(prefix="pawl-tls-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.path, self.key = os.path.join(self.folder, "ca.pem"), os.path.join(self.folder, "ca.key")
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", f"/CN={name}",
                 "-keyout", self.key, "-out", self.path)
        self._made = 0

    def make(self, cn, san=SERVER_NAMES, days=28, subject=None, usage="serverAuth,clientAuth", into=None):
        """A new certificate. days may be negative: it has ended. `into`: a folder to put cert.pem and key.pem in, over what is there."""
        self._made += 1
        folder = into or os.path.join(self.folder, str(self._made))
        os.makedirs(folder, exist_ok=True)
        cert, key, csr = (os.path.join(folder, name) for name in ("cert.pem", "key.pem", "csr.pem"))
        extensions = os.path.join(folder, "extensions")
        with open(extensions, "w", encoding="utf-8") as f:
            f.write((f"subjectAltName={san}\n" if san else "") + f"extendedKeyUsage={usage}\n")
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8", "-subj", subject or f"/CN={cn}", "-keyout", key, "-out", csr)
        os.chmod(key, 0o600)
        _openssl("x509", "-req", "-in", csr, "-CA", self.path, "-CAkey", self.key, "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", cert)
        return SimpleNamespace(cert=cert, key=key, folder=folder)


@functools.lru_cache(maxsize=None)
def authority():
    """The one that open_socket trusts; one for each process of tests."""
    return Authority()


@functools.lru_cache(maxsize=None)
def server_certificate():
    return authority().make("pawld")


def server_arguments():
    """For pawld and for front_probe."""
    return ["--tls-cert", server_certificate().cert, "--tls-key", server_certificate().key]


def context(client=None, trust=None, version=None):
    """A client's. `client`: the certificate it shows. `version`: ssl.TLSVersion, that one alone."""
    it = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    it.load_verify_locations((trust or authority()).path)
    if client is not None:
        it.load_cert_chain(client.cert, client.key)
    if version is not None:
        it.minimum_version = it.maximum_version = version
    return it


@functools.lru_cache(maxsize=None)
def default_context():
    return context()


class TlsSocket:
    """Over a connected, blocking socket with a time-out, which it then owns."""

    def __init__(self, sock, ctx, host, handshake=True):
        self.raw = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a request waits for the handshake's last flight to be acknowledged
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ctx.wrap_bio(self._in, self._out, server_hostname=host)
        self._plain = b""
        self._unsent = b""
        self._eof = False
        if handshake:
            self.handshake()

    def handshake(self):
        while True:
            try:
                self.tls.do_handshake()
                self._push()
                return
            except ssl.SSLWantReadError:
                self._push()
                self._pull()
            except ssl.SSLError:
                self._push()
                raise

    def _push(self):
        self._unsent += self._out.read()
        while self._unsent:
            self._unsent = self._unsent[self.raw.send(self._unsent):]

    def _pull(self):
        data = self.raw.recv(1 << 20)
        if data:
            self._in.write(data)
        else:
            self._eof = True
            self._in.write_eof()

    def sendall(self, data):
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view[:16384]):]
            self._push()

    def send(self, data):
        if self._unsent:  # non-blocking, and the last one is not out yet
            self._push()
        n = self.tls.write(data[:16384])
        try:
            self._push()
        except BlockingIOError:
            pass
        return n

    def _records(self, count):
        """What has been received and not read, up to `count` bytes, so that a large body is not read in small pieces."""
        parts, have = [], 0
        try:
            while have < count:
                parts.append(self.tls.read(65536))
                if not parts[-1]:
                    break
                have += len(parts[-1])
        except ssl.SSLError:
            if not parts:
                raise
        return b"".join(parts)

    def recv(self, count, flags=0):
        while not self._plain:
            try:
                self._plain = self._records(count)
                if not self._plain:
                    return b""
            except ssl.SSLWantReadError:
                if self._eof:
                    return b""
                self._pull()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
        data = self._plain[:count]
        if not flags & socket.MSG_PEEK:
            self._plain = self._plain[count:]
        return data

    def holds(self):
        return bool(self._plain or self._in.pending or self.tls.pending())

    def close_notify(self):
        """Ends our sending as TLS does; the socket stays as it is, and reading goes on."""
        try:
            self.tls.unwrap()
        except (ssl.SSLWantReadError, ssl.SSLError):
            pass
        self._push()

    def fin(self):
        self.raw.shutdown(socket.SHUT_WR)

    def rst(self):
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.raw.close()

    def shutdown(self, how):
        assert how == socket.SHUT_WR
        self.close_notify()

    def close(self):
        """Politely, if that goes without waiting."""
        if self.raw.fileno() >= 0:
            try:
                self.raw.setblocking(False)
                self.close_notify()
            except (OSError, ssl.SSLError):
                pass
            self.raw.close()

    def setblocking(self, on):
        self.raw.setblocking(on)

    def settimeout(self, seconds):
        self.raw.settimeout(seconds)

    def setsockopt(self, *args):
        self.raw.setsockopt(*args)

    def getsockname(self):
        return self.raw.getsockname()

    def fileno(self):
        return self.raw.fileno()


def open_raw(address, timeout_s=30.0):
    """The TCP connection alone, and the host that its certificate must name."""
    from pawltest.http import open_socket

    where = address[len("tls:"):]
    return open_socket(where, timeout_s), where.rpartition(":")[0].strip("[]")


def open_tls(address, timeout_s=30.0, ctx=None, handshake=True):
    sock, host = open_raw(address, timeout_s)
    try:
        return TlsSocket(sock, ctx or default_context(), host, handshake)
    except BaseException:
        sock.close()
        raise
