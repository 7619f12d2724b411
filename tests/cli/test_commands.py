"""The commands that ask once: acquire, renew, release, check, status, ls, break, top."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
import time

import pytest

from pawltest.cli import FAILED, HELD, LOST, NOT_HELD, REFUSED, UNAVAILABLE, binary, cli, cli_environment
from pawltest.wait import until
from pawltest.waiters import hold, look


@pytest.fixture
def pawl(broker):
    def run(*args, **how):
        return cli(*args, server=broker.pawld.address, **how)

    return run


def fields(text):
    return dict(line.split(None, 1) for line in text.splitlines())


def test_a_lease_by_hand(pawl, broker, name):
    code, out, _ = pawl("acquire", "--ttl", "20s", "--owner", "by hand", "--json", name)
    lease = json.loads(out)
    assert code == 0 and lease["name"] == name and 15000 < lease["ttl_ms"] <= 20000
    status = json.loads(pawl("status", "--json", name)[1])
    assert status["held"] and status["owner"] == "by hand" and status["token"] == lease["token"] and status["waiters"] == 0
    assert pawl("check", "--token", str(lease["token"]), name)[0] == 0
    assert pawl("check", name, env={"PAWL_TOKEN": str(lease["token"])})[0] == 0
    assert pawl("check", "--token", str(lease["token"] + 1), name)[0] == LOST
    code, out, _ = pawl("renew", "--ttl", "50s", "--json", name, env={"PAWL_LEASE_ID": lease["lease_id"]})
    assert code == 0 and json.loads(out)["ttl_ms"] > 45000 and json.loads(out)["token"] == lease["token"]
    assert broker.redis.pttl(name) > 45000
    assert pawl("release", "--lease-id", lease["lease_id"], name)[0] == 0
    assert pawl("release", "--lease-id", lease["lease_id"], name)[0] == LOST
    assert pawl("renew", "--lease-id", lease["lease_id"], name)[0] == LOST
    assert json.loads(pawl("status", "--json", name)[1]) == {"name": name, "held": False, "waiters": 0}


def test_what_people_see(pawl, name):
    code, out, err = pawl("acquire", name)
    lease = fields(out)
    assert code == 0 and err == "" and lease["lock"] == name and lease["token"].isdigit() and len(lease["lease"].split()[1]) == 36
    code, out, err = pawl("status", name)
    assert code == 0 and f"token     {lease['token']}\n" in out and lease["lease"].split()[1] not in out
    code, out, err = pawl("acquire", name)
    assert code == HELD and out == "" and err.startswith(f"pawl: {name}: held by ") and err.count("\n") == 1
    code, out, err = pawl("acquire", "--json", name)
    answer = json.loads(out)
    assert code == HELD and err == "" and answer["error"] == "held" and str(answer["holder"]["token"]) == lease["token"]
    assert pawl("break", "--reason", "a test", name)[1].startswith(f"{name}: broken; ")
    assert pawl("break", "--reason", "a test", name)[0] == NOT_HELD
    assert "free" in pawl("status", name)[1]


def test_acquire_waits_and_repeats(pawl, broker, name):
    held = hold(broker.api, name, ttl_ms=700)
    started = time.monotonic()
    code, out, _ = pawl("acquire", "--wait", "20s", "--json", "--lease-id", "3d3c1e7e-8f4f-4a0c-9d53-6f3e2a0c1b11", name)
    assert code == 0 and time.monotonic() - started > 0.4
    first = json.loads(out)
    assert first["token"] > held["token"]
    assert json.loads(pawl("acquire", "--json", "--lease-id", "3d3c1e7e-8f4f-4a0c-9d53-6f3e2a0c1b11", name)[1])["token"] == first["token"]


def test_ls(pawl, broker, name):
    for i in range(3):
        hold(broker.api, f"{name}/{i}")
    code, out, _ = pawl("ls", "--json", name + "/")
    locks = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and sorted(lock["name"] for lock in locks) == [f"{name}/{i}" for i in range(3)]
    assert all(lock["held"] and lock["owner"] == "holder" for lock in locks)
    code, out, _ = pawl("ls", name + "/")
    assert code == 0 and len(out.splitlines()) == 4 and out.startswith("NAME")
    assert pawl("ls", name + "/nothing") == (0, "", "")


def test_names_are_the_same_lock_everywhere_c28(pawl, broker, name):
    for part in ("a+b", "x:queue", "~", "a=b,c@d", "deep/er/acquire"):
        lock = f"{name}/{part}"
        lease = json.loads(pawl("acquire", "--json", lock)[1])
        assert look(broker.api, lock)["token"] == lease["token"]
        assert json.loads(pawl("ls", "--json", lock)[1])["name"] == lock
        assert pawl("release", "--lease-id", lease["lease_id"], lock)[0] == 0
    for bad in ("a b", "a%00b", "a%2Fb", "..", "/a", "a/", "a//b", "", "\u00e9", "a\nb", "a?x", "a" * 256):
        assert pawl("status", bad)[0] == FAILED, bad


def test_an_owner_does_not_steer_the_terminal_c34(pawl, broker, name):
    """pawld refuses control characters in an owner; what lies in Redis may hold any."""
    hold(broker.api, name)
    key = broker.redis.lock_key(name)
    value = broker.redis.command("GET", key)
    assert "holder" in value
    broker.redis.command("SET", key, value.replace("holder", "x\x1b[2J\r\ny"), "KEEPTTL")
    code, out, _ = pawl("status", name)
    assert code == 0 and "\x1b" not in out and "\r" not in out and len(out.splitlines()) == 5
    assert "\x1b" not in pawl("ls", name)[1]


def test_over_a_unix_socket_and_ipv6_c43(world, redis, name):
    path = os.path.join(world.folder(), "s")
    world.pawld(redis, listen=[f"unix:{path}", "[::1]:0"])
    daemon_addresses = [f"unix:{path}"]
    lease = json.loads(cli("acquire", "--json", name, server=daemon_addresses[0])[1])
    assert cli("check", "--server", f"unix:{path}", "--token", str(lease["token"]), name)[0] == 0
    assert cli("status", "--server", "unix:relative", name)[0] == FAILED


def test_ipv6_address_c43(world, redis, name):
    daemon = world.pawld(redis, listen=["[::1]:0"])
    code, out, err = cli("status", "--json", "--server", "http://" + daemon.address, name)
    assert code == 0, err
    assert json.loads(out)["held"] is False


def test_codes_when_there_is_no_answer(pawl, world, redis, name):
    assert cli("status", "--retry", "0", name, server="127.0.0.1:1")[0] == UNAVAILABLE
    code, out, _ = cli("status", "--retry", "0", "--json", name, server="127.0.0.1:1")
    assert code == UNAVAILABLE and json.loads(out)["error"] == "unavailable"
    crowded = world.pawld(redis, ["--max-waiters", "0"])
    hold(crowded.api(), name)
    assert cli("acquire", "--wait", "5s", name, server=crowded.address)[0] == REFUSED


def test_what_went_wrong_is_said_with_its_place(broker, world, redis, name):
    """Broken: somebody is sent to "localhost port 80", or to a parameter that he didn't give."""
    def said(*args, server):
        return cli(*args, "--retry", "0", "--server", server)[2]

    closed = "http://127.0.0.1:1"
    assert said("status", name, server="unix:/nonexistent/s") == \
        f"pawl: {name}: cannot connect to unix:/nonexistent/s: No such file or directory (unavailable)\n"
    assert said("status", name, server=closed) == f"pawl: {name}: cannot connect to {closed}: Connection refused (unavailable)\n"
    assert "speaks no TLS" in said("status", name, server=f"https://{broker.pawld.address}")
    short = "http://" + world.pawld(redis, ["--max-wait", "5s", "--max-ttl", "1m"]).address
    assert said("acquire", "--wait", "6s", name, server=short) == f"pawl: {name}: --wait: must be from 0 to 5000 ms (pawld's --max-wait)\n"
    assert said("acquire", "--ttl", "2m", name, server=short).startswith(f"pawl: {name}: --ttl: must be from 1 to 60000 ms (pawld's --min-ttl")
    assert "options stand behind the command" in cli("--retry", "1s", "ls")[2]


def test_proxies_in_the_environment_are_not_used(pawl, name):
    for variable in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        assert pawl("status", name, env={variable: "http://127.0.0.1:1"})[0] == 0


def test_output_that_cannot_be_written_is_a_failure(broker, name):
    with open("/dev/full", "wb") as full:
        import subprocess

        done = subprocess.run([binary(), "status", name], stdout=full, stderr=subprocess.PIPE, env=cli_environment(broker.pawld.address),
                              timeout=30, check=False)
    assert done.returncode == FAILED and b"written" in done.stderr


# ---- on a terminal


class Screen:
    def __init__(self, server, *args, command="top", rows=20, columns=100):
        env = cli_environment(server)
        env["TERM"] = "xterm"
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(binary(), ["pawl", command, *args], env)
        self.shown = ""

    def until(self, text, deadline_s=20.0):
        end = time.monotonic() + deadline_s
        while text not in self.shown:
            assert time.monotonic() < end, f"no {text!r} in {self.shown[-2000:]!r}"
            self.read()

    def read(self):
        """Takes what is there within a tenth of a second."""
        if select.select([self.fd], [], [], 0.1)[0]:
            try:
                self.shown += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                pass

    def press(self, key):
        os.write(self.fd, key)

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def modes(self):
        return termios.tcgetattr(self.fd)[3]


def test_who_sits_before_a_terminal_hears_that_it_is_tried_again():
    """Broken: ten seconds of silence, and then that there is no pawld; or a word into the mails of cron about what may yet come right."""
    screen = Screen("unix:/nonexistent/s", "--retry", "500ms", command="ls")
    screen.until("/nonexistent/s")
    screen.until("trying again for another 0.")
    assert screen.wait() == UNAVAILABLE
    code, _, err = cli("ls", "--retry", "500ms", server="unix:/nonexistent/s")
    assert code == UNAVAILABLE and "/nonexistent/s" in err and err.count("\n") == 1


def test_top_shows_what_is_held_and_ends_by_a_key(broker, name):
    broker.api.must("acquire", f"{name}/one", ttl_ms=600000, owner="somebody")
    screen = Screen(broker.pawld.address, "--interval", "100ms", name)
    screen.until(f"{name}/one")
    screen.until("somebody")
    second = broker.api.must("acquire", f"{name}/two", ttl_ms=600000)
    screen.until(f"{name}/two")
    screen.until("2 held")
    broker.api.must("release", f"{name}/two", lease_id=second["lease_id"])
    screen.shown = ""
    screen.until("1 held")
    assert not screen.modes() & termios.ICANON
    screen.press(b"q")
    screen.until("\x1b[?1049l")
    assert screen.wait() == 0
    os.close(screen.fd)


def test_top_fits_the_window(broker, name):
    for i in range(30):
        broker.api.must("acquire", f"{name}/{'x' * 120}{i}", ttl_ms=600000)
    screen = Screen(broker.pawld.address, "--interval", "100ms", name, rows=10, columns=40)
    screen.until("30 held")
    screen.shown = ""
    whole = re.compile(r"\x1b\[H(pawl top.*?)\x1b\[J", re.S)
    until(lambda: screen.read() or whole.search(screen.shown), what="a whole picture")
    picture = whole.search(screen.shown).group(1)
    lines = re.sub(r"\x1b\[[0-9]*[mK]", "", picture).split("\r\n")
    assert 8 <= len(lines) <= 10 and all(len(line) <= 40 for line in lines), lines
    screen.press(b"\x03")
    assert screen.wait() == 0
    os.close(screen.fd)


def test_top_says_that_pawld_is_away_and_comes_back(world, redis, name):
    daemon = world.pawld(redis)
    host, _, port = daemon.address.rpartition(":")
    proxy = world.proxy((host, int(port)))
    daemon.api().must("acquire", name, ttl_ms=600000)
    screen = Screen(proxy.http_address, "--interval", "100ms", "--retry", "0")
    screen.until("1 held")
    proxy.slam = True
    proxy.cut()
    screen.until("0 held")
    screen.until(" -- ")
    proxy.slam = False
    screen.shown = ""
    screen.until("1 held")
    os.kill(screen.pid, 15)
    assert screen.wait() == 143
    os.close(screen.fd)


def test_top_needs_a_terminal(pawl):
    code, out, err = pawl("top")
    assert code == FAILED and out == "" and "pawl ls --json" in err


def test_the_terms_of_a_lease(broker, name):
    """--lock-delay and --max-hold reach pawld, and status and a refusal tell of them."""
    server = broker.pawld.address
    code, out, err = cli("acquire", "--ttl", "30s", "--lock-delay", "40s", "--max-hold", "1h", "--json", name, server=server)
    assert code == 0, err
    shown = json.loads(cli("status", "--json", name, server=server)[1])
    assert shown["lock_delay_ms"] == 40_000 and 3_500_000 < shown["max_hold_left_ms"] <= 3_600_000
    assert "after the lease, unless it is released" in cli("status", name, server=server)[1]
    assert cli("break", "--reason", "test", name, server=server)[0] == 0
    shown = json.loads(cli("status", "--json", name, server=server)[1])
    assert not shown["held"] and 20_000 < shown["delay_left_ms"] <= 40_000
    assert "nobody gets it for another" in cli("status", name, server=server)[1]
    code, out, err = cli("acquire", name, server=server)
    assert code == 114 and "nobody gets it for another" in err
    code, out, err = cli("acquire", "--json", name, server=server)
    refused = json.loads(out)
    assert code == 114 and refused["holder"] is None and 20_000 < refused["delay_left_ms"] <= 40_000
    assert cli("acquire", "--max-hold", "0", name, server=server)[0] == 125
