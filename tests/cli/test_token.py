"""`pawl` at a pawld with access rules: where it takes its token from, what it says when that is wrong, and who else gets to see the token."""

import json
import os
import subprocess
import sys

import pytest

from pawltest.auth import AuthFile, new_token
from pawltest.cli import FAILED, HELD, REFUSED, Runner, binary, cli, cli_environment
from pawltest.wait import until


@pytest.fixture
def guarded(world, redis):
    """A pawld with two rules; .may and .reads are their tokens, .file holds the first."""

    class Guarded:
        pass

    it = Guarded()
    auth = AuthFile(world.folder())
    it.may = auth.rule("may", ["a/"], ["admin"])
    it.reads = auth.rule("reads", ["a/"], ["read"])
    auth.write()
    it.pawld = world.pawld(redis, auth.args)
    it.address = it.pawld.address
    it.file = os.path.join(world.folder(), "token")
    write(it.file, it.may + "\n")
    return it


def write(path, text):
    with open(path, "w", encoding="latin-1", newline="") as f:
        f.write(text)


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_every_command_takes_the_token_from_a_file(guarded, end):
    """Broken: a command that forgets it, or a token with the end of its line in it."""
    write(guarded.file, guarded.may + end)

    def pawl(command, *args):
        return cli(command, "--token-file", guarded.file, *args, server=guarded.address)

    code, out, err = pawl("acquire", "--json", "--ttl", "60s", "a/1")
    assert code == 0, err
    lease = json.loads(out)
    assert pawl("renew", "--lease-id", lease["lease_id"], "a/1")[0] == 0
    assert pawl("check", "--token", str(lease["token"]), "a/1")[0] == 0
    assert pawl("status", "a/1")[0] == 0
    assert "a/1" in pawl("ls")[1]
    assert pawl("break", "--reason", "test", "a/1")[0] == 0
    assert pawl("run", "a/1", "--", "true")[0] == 0
    assert pawl("acquire", "a/1")[0] == 0 and pawl("acquire", "a/1")[0] == HELD


def test_from_the_environment_and_which_counts(guarded):
    """Broken: another place wins than the manual says."""
    wrong = guarded.file + ".wrong"
    write(wrong, "nobody-has-this\n")
    server = guarded.address
    assert cli("status", "a/1", server=server, env={"PAWL_ACCESS_TOKEN": guarded.may})[0] == 0
    assert cli("status", "a/1", server=server, env={"PAWL_TOKEN_FILE": guarded.file})[0] == 0
    assert cli("status", "a/1", server=server, env={"PAWL_TOKEN_FILE": guarded.file, "PAWL_ACCESS_TOKEN": "wrong"})[0] == 0
    assert cli("status", "--token-file", guarded.file, "a/1", server=server, env={"PAWL_TOKEN_FILE": wrong, "PAWL_ACCESS_TOKEN": "wrong"})[0] == 0
    assert cli("status", "--token-file", wrong, "a/1", server=server, env={"PAWL_ACCESS_TOKEN": guarded.may})[0] == REFUSED
    assert cli("status", "a/1", server=server, env={"PAWL_ACCESS_TOKEN": "", "PAWL_TOKEN_FILE": ""})[0] == REFUSED


def test_a_pipe_is_a_file(guarded):
    """Broken: tokens that a password manager prints have to be put on a disk first."""
    script = f'printf %s "$T" | "{binary()}" status --token-file /dev/stdin a/1'
    done = subprocess.run(["sh", "-c", script], env={**cli_environment(guarded.address), "T": guarded.may}, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text, said", [
    ("", "1 to 4096"), ("\n", "1 to 4096"), ("hush hush\n", "blanks"), ("hush\nhush\n", "blanks"), ("hush\0hush\n", "NUL"), ("hush\xff\n", "blanks"),
    ("hush\x1b\n", "blanks"), ("hush" * 1025, "1 to 4096"), ("hush\n\n", "blanks"),
])
def test_a_bad_token_file_is_said_and_not_shown(guarded, text, said):
    """Broken: what stands in the file comes out in a complaint."""
    write(guarded.file, text)
    code, out, err = cli("status", "--token-file", guarded.file, "a/1", server=guarded.address)
    assert code == FAILED and said in err and "hush" not in err + out and err.count("\n") == 1, err
    if "\0" not in text and "\xff" not in text and text.strip():
        code, out, err = cli("status", "a/1", server=guarded.address, env={"PAWL_ACCESS_TOKEN": text})
        assert code == FAILED and "hush" not in err + out and err.count("\n") == 1, err


def test_a_token_in_place_of_the_file_is_not_repeated(guarded):
    """Broken: who mistook the option finds his token in a log."""
    code, out, err = cli("status", "--token-file", guarded.may, "a/1", server=guarded.address)
    assert code == FAILED and "can't be read" in err and guarded.may not in err + out


def test_refusals_have_their_exit_code_and_a_reason(guarded):
    """Broken: a script can't tell a wrong token from a pawld that is away."""
    server = guarded.address
    for env, reason in (({}, "access token"), ({"PAWL_ACCESS_TOKEN": new_token()}, "access token"), ({"PAWL_ACCESS_TOKEN": guarded.reads}, "reads")):
        code, out, err = cli("acquire", "a/1", server=server, env=env)
        assert code == REFUSED and reason in err, (env, err)
        code, out, err = cli("acquire", "--json", "a/1", server=server, env=env)
        assert code == REFUSED and json.loads(out)["error"] in ("unauthorized", "forbidden"), out
    for _ in range(100):  # until it is too often
        code, _, err = cli("status", "a/1", server=server, env={"PAWL_ACCESS_TOKEN": "wrong"})
        assert code == REFUSED, err
        if "too many" in err:
            break
    assert "too many" in err
    assert cli("status", "a/1", server=server, env={"PAWL_ACCESS_TOKEN": guarded.may})[0] == 0


def environ_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return f.read().decode("latin-1")


def test_the_token_is_for_pawl_alone(guarded):
    """Broken: CMD, its children, /proc or ps have the token that pawl was given."""
    secret = guarded.may
    show = [sys.executable, "-S", "-E", "-c", "import os; print(sorted(k for k in os.environ if k.startswith('PAWL')))"]
    code, out, err = cli("run", "a/1", "--", *show, server=guarded.address, env={"PAWL_ACCESS_TOKEN": secret})
    assert code == 0 and "PAWL_TOKEN" in out and "PAWL_ACCESS_TOKEN" not in out and secret not in out + err, (out, err)
    runner = Runner(guarded.address, "a/2", "--ttl", "4s", env={"PAWL_ACCESS_TOKEN": secret})
    try:
        runner.until_beating()
        begun = len(runner.beats())
        until(lambda: guarded.pawld.api(token=secret).metrics()["pawl_renewals_total"] >= 2, what="renewed with the token")
        assert len(runner.beats()) > begun
        for pid in (runner.pid, runner.cmd_pid()):
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert secret.encode() not in f.read()
            assert secret not in environ_of(pid)
        runner.child.terminate()
        runner.wait()
        assert secret not in runner.stderr() + runner.stdout()
    finally:
        runner.close()
    assert secret not in guarded.pawld.stderr()
