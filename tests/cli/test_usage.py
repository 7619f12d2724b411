"""Help, usage errors, and that help, manual and completions speak of the same commands and options."""

import os
import re
import shutil
import subprocess

import pytest

from pawltest.cli import FAILED, binary, cli

TOP = os.environ.get("TOP_SRCDIR") or os.path.join(os.path.dirname(__file__), "..", "..")
COMMANDS = ["run", "acquire", "renew", "release", "check", "status", "ls", "break", "top"]


def text(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def options(command):
    """Long options by its --help."""
    code, out, err = cli(command, "--help")
    assert code == 0 and err == "" and out.startswith(f"Usage: pawl {command} ")
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", out, re.M))


def test_help_and_version():
    code, out, err = cli("--help")
    assert code == 0 and err == ""
    assert re.findall(r"^  ([a-z]+) ", out, re.M) == COMMANDS
    assert cli("help")[1] == cli("-h")[1] == out
    code, out, _ = cli("--version")
    assert code == 0 and re.fullmatch(r"pawl \d+\.\d+\.\d+\n", out)
    assert cli("run", "-h")[0] == 0


@pytest.mark.parametrize("args", [
    [], ["nope"], ["--nope"], ["status"], ["status", "a", "b"], ["ls", "a", "b"], ["acquire"], ["acquire", "--ttl", "a"],
    ["acquire", "--ttl"], ["acquire", "--ttl", "5", "a"], ["acquire", "--ttl", "0", "a"], ["acquire", "--ttl=-1s", "a"],
    ["acquire", "--grace", "1s", "a"], ["status", "--ttl", "1s", "a"], ["renew", "a"], ["renew", "--lease-id", "x", "a"],
    ["release", "a"], ["check", "a"], ["check", "--token", "0", "a"], ["check", "--token", "1e3", "a"],
    ["check", "--token", "9007199254740992", "a"], ["break", "a"], ["break", "--reason", "", "a"], ["status", "--server", "ftp://x", "a"],
    ["top", "--interval", "1ms"], ["acquire", "--owner", "a\x1bb", "a"], ["run", "--json", "a", "--", "true"],
])
def test_wrong_usage_is_said_in_one_line(args):
    code, out, err = cli(*args, server="127.0.0.1:1")
    assert code == FAILED and out == "", (code, out, err)
    assert args == [] or (err.startswith("pawl: ") and err.count("\n") == 1 and "\x1b" not in err), err


def test_the_manual_names_every_command_option_and_exit_code():
    page = text("docs", "man", "pawl.1").replace("\\-", "-")
    everything = set()
    for command in COMMANDS:
        assert re.search(rf"^\.B {command}$", page, re.M), command
        everything |= options(command)
    named = set(re.findall(r"--[a-z][a-z-]+", page)) - {"--version"}
    assert named == everything
    assert set(re.findall(r"^\.B (\d+)$", page, re.M)) == {"0", "113", "114", "115", "116", "117", "125", "126", "127"}


def test_the_manual_of_the_library_names_every_function():
    page = text("docs", "man", "pawl.3")
    header = text("client", "pawl.h")
    functions = set(re.findall(r"^[a-z].*[ *](pawl_[a-z_]+)\(", header, re.M)) - {"pawl_event_fn"}
    assert functions and set(re.findall(r"[ *](pawl_[a-z_]+)\(", page[:page.index(".SH DESCRIPTION")])) == functions
    assert set(re.findall(r"^\.B (PAWL_ERR_\w+)", page, re.M)) == set(re.findall(r"^    (PAWL_ERR_\w+)", header, re.M))


@pytest.mark.parametrize("page", ["pawl.1", "pawl.3"])
def test_the_manual_is_sound_roff(page):
    if not shutil.which("man"):
        pytest.skip("no man here to read it with (Debian: man-db)")
    done = subprocess.run(["man", "--warnings", "-l", "-E", "UTF-8", "-Tutf8", os.path.join(TOP, "docs", "man", page)], capture_output=True,
                          timeout=60, check=True, env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"})
    assert done.stderr == b"", done.stderr.decode()
    assert done.stdout


def test_bash_completion(tmp_path):
    source = text("client", "completion", "pawl")
    for command in COMMANDS:
        said = re.search(rf"^    {command}\) options='([^']*)'", source, re.M).group(1).split()
        assert set(said) == options(command), command
    script = f'''. "{os.path.join(TOP, 'client', 'completion', 'pawl')}"
complete_it() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _pawl; printf '%s ' "${{COMPREPLY[@]}}"; echo; }}
complete_it pawl ''
complete_it pawl re
complete_it pawl run --tt
complete_it pawl run --ttl 1
complete_it pawl run x -- tru
'''
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=30, check=True)
    assert done.stderr == b"", done.stderr
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert set(COMMANDS) <= set(lines[0])
    assert lines[1] == ["renew", "release"]
    assert lines[2] == ["--ttl"]
    assert "1s" in lines[3]
    assert "true" in lines[4]


def test_zsh_completion():
    source = text("client", "completion", "_pawl")
    assert set(re.findall(r"^        '([a-z]+):", source, re.M)) == set(COMMANDS)
    common = set(re.findall(r"--[a-z-]+", source[source.index("common=("):source.index("json=(")]))
    for command in COMMANDS:
        part = re.search(rf"^    {command}\)(.*?);;$", source, re.M | re.S).group(1)
        said = set(re.findall(r"--[a-z][a-z-]+", part)) | common
        said |= {"--json"} if "$json" in part else set()
        said |= {"--lease-id"} if "$lease" in part else set()
        assert said == options(command), command
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", os.path.join(TOP, "client", "completion", "_pawl")], timeout=30, check=True)


def test_binary_is_where_it_is_said_to_be():
    assert os.access(binary(), os.X_OK)
