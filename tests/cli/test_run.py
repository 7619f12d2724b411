"""`pawl run`: the environment, exit codes, signals, process trees, and what it costs (C16, C17)."""

import os
import signal
import statistics
import subprocess
import sys
import time
import warnings

import pytest

from pawltest.cli import FAILED, HELD, LOST, UNAVAILABLE, alive, binary, cli, cli_environment, state
from pawltest.wait import always, until
from pawltest.waiters import hold, look, standing

SIGNALS = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]


def number(name):
    return getattr(signal, "SIG" + name)


def free(api, name):
    it = look(api, name)
    return not it["held"] and it["waiters"] == 0


def python(text):
    return [sys.executable, "-S", "-E", "-c", text]


# ---- what CMD gets


def test_cmd_gets_lock_and_token_and_no_lease_id(broker, name):
    script = 'echo "$PAWL_LOCK $PAWL_TOKEN ${PAWL_LEASE_ID-none}"; exit 0'
    code, out, _ = cli("run", name, "--", "sh", "-c", script, server=broker.pawld.address, env={"PAWL_LEASE_ID": "an outer one"})
    lock, token, lease_id = out.split()
    assert (code, lock, lease_id) == (0, name, "none")
    assert int(token) > 0


def test_the_lease_id_only_when_asked(broker, name):
    script = '"$0" renew --json "$PAWL_LOCK" && "$0" check --json "$PAWL_LOCK"'
    code, out, err = cli("run", "--export-lease-id", name, "--", "sh", "-c", script, binary(), server=broker.pawld.address)
    assert code == 0, err
    assert len(out.splitlines()) == 2 and '"lease_id"' in out


def test_piped_stdin_passes_untouched_c44(broker, name):
    data = bytes(range(256)) * 4096
    done = subprocess.run([binary(), "run", name, "--", "cat"], input=data, capture_output=True, timeout=30, check=True,
                          env=cli_environment(broker.pawld.address))
    assert done.stdout == data


def test_descriptors_signals_and_mask_are_those_pawl_was_given(broker, name):
    """No descriptor of pawl's own, none missing, and no signal blocked or ignored that wasn't before."""
    script = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)); " \
             "print([l.split() for l in open('/proc/self/status') if l.startswith(('SigBlk', 'SigIgn'))])"
    command = [sys.executable, "-S", "-E", "-c", script]
    extra = os.open("/dev/null", os.O_RDONLY)
    try:
        run = dict(env=cli_environment(broker.pawld.address), capture_output=True, timeout=30, check=True, pass_fds=[extra])
        plain = subprocess.run(command, **run).stdout
        under = subprocess.run([binary(), "run", name, "--", *command], **run).stdout
    finally:
        os.close(extra)
    assert under == plain


def test_ignored_signals_stay_ignored_as_under_nohup(broker, name):
    script = f'trap "" HUP CHLD; exec "{binary()}" run {name} -- grep SigIgn /proc/self/status'
    done = subprocess.run(["sh", "-c", script], env=cli_environment(broker.pawld.address), capture_output=True, timeout=30, check=True)
    mask = int(done.stdout.split()[1], 16)
    assert mask & 1 << (signal.SIGHUP - 1)


# ---- exit codes


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("kill -ABRT $$", 134)])
def test_cmds_exit_status_is_pawls(broker, name, script, code):
    assert cli("run", name, "--", "sh", "-c", script, server=broker.pawld.address)[0] == code
    assert free(broker.api, name)


def test_exit_status_also_when_sigchld_was_ignored(broker, name):
    done = subprocess.run(["sh", "-c", f'trap "" CHLD; exec "{binary()}" run {name} -- sh -c "exit 5"'],
                          env=cli_environment(broker.pawld.address), timeout=30, check=False)
    assert done.returncode == 5


def test_own_exit_codes(broker, world, name):
    server = broker.pawld.address
    assert cli("run", name, "--", "/nonexistent/x", server=server)[0] == 127
    assert cli("run", name, "--", "/etc/passwd", server=server)[0] == 126
    assert free(broker.api, name)
    held = hold(broker.api, name)
    code, _, err = cli("run", name, "--", "true", server=server)
    assert code == HELD and "holder" in err
    started = time.monotonic()
    assert cli("run", "--wait", "300ms", name, "--", "true", server=server)[0] == HELD
    assert time.monotonic() - started >= 0.3
    broker.api.must("release", name, lease_id=held["lease_id"])
    assert cli("run", "--retry", "0", name, "--", "true", server="127.0.0.1:1")[0] == UNAVAILABLE
    for bad in (["run", name], ["run", name, "--"], ["run", "--", "true"], ["run", "a", "b", "--", "true"], ["run", "--nope", name, "--", "true"],
                ["run", "--ttl", "5", name, "--", "true"], ["run", "--ttl", "10ms", name, "--", "true"], ["run", "a b", "--", "true"],
                ["run", "--grace", "20s", name, "--", "true"], ["run", "--ttl", "99d", name, "--", "true"],
                ["run", "--max-hold", "0", name, "--", "true"], ["run", "--max-hold", "900ms", name, "--", "true"],
                ["run", "--lock-delay", "61s", name, "--", "true"]):
        code, out, err = cli(*bad, server=server)
        assert code == FAILED and err.startswith("pawl: ") and out == "", (bad, code, out, err)
    assert free(broker.api, name)


def test_a_lease_that_was_broken_unnoticed_counts_as_lost(broker, name):
    script = f'"$0" break --reason test {name}; exit 0'
    code, _, err = cli("run", name, "--", "sh", "-c", script, binary(), server=broker.pawld.address)
    assert code == LOST, err


# ---- signals (C17)

TRAPPER = r"""
import os, signal, sys, time
seen = []
for n in (%s):
    signal.signal(n, lambda number, _: seen.append(number))
print("ready", flush=True)
end = time.monotonic() + 30
while not seen and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)  # a second one would come now
print(*seen, flush=True)
sys.exit(7)
""" % ", ".join(f"signal.SIG{name}" for name in SIGNALS)


@pytest.mark.parametrize("which", SIGNALS)
def test_a_signal_reaches_cmd_once_and_pawl_waits_c17(broker, runner, name, which):
    run = runner(broker.pawld.address, name, command=python(TRAPPER))
    until(lambda: "ready" in run.stdout(), what="CMD is ready")
    run.signal(number(which))
    assert run.wait() == 7
    assert run.stdout().split() == ["ready", str(int(number(which)))]
    assert free(broker.api, name)


@pytest.mark.parametrize("which", SIGNALS)
def test_a_signal_while_waiting_ends_pawl_c17(broker, runner, name, which):
    held = hold(broker.api, name)
    run = runner(broker.pawld.address, name, "--wait", "60s")
    standing(broker.api, name, 1)
    run.signal(number(which))
    assert run.wait() == 128 + number(which)
    standing(broker.api, name, 0)
    assert run.beats() == []
    broker.api.must("release", name, lease_id=held["lease_id"])
    assert free(broker.api, name)


def test_a_signal_while_pawld_is_away_ends_pawl(runner, name):
    run = runner("127.0.0.1:1", name, "--retry", "60s")
    until(lambda: state(run.pid) == "S" and b"run" in open(f"/proc/{run.pid}/cmdline", "rb").read(), what="pawl waits")
    always(run.running, 0.2, "it goes on trying")
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM


@pytest.mark.deadline(120)
def test_a_signal_between_grant_and_exec_leaves_no_orphan_c17(broker, runner, name):
    """Whenever it comes in the life of pawl, no lease and no CMD are left."""
    codes = set()
    for i in range(60):
        run = runner(broker.pawld.address, name, tag=f"r{i}")
        time.sleep(i * 0.0007)  # the sweep of what is tested, not a wait for a state
        run.signal(signal.SIGTERM)
        codes.add(run.wait())
        assert free(broker.api, name)
        assert not run.beats() or not alive(run.cmd_pid())
    assert codes <= {143, -15}, codes


# ---- trees (C16)

TREE = 'sleep 600 & sleep 600 & (setsid sleep 600 & setsid sh -c "sleep 600 & wait" &) ; echo ready; %s'


def sleepers(run):
    """All descendants of pawl."""
    found, todo = [], [run.pid]
    while todo:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                children = [int(child) for child in f.read().split()]
        except OSError:
            children = []
        found += children
        todo += children
    return found


def start_tree(runner, server, name, *args, end="wait"):
    run = runner(server, name, *args, command=["sh", "-c", TREE % end])
    until(lambda: "ready" in run.stdout(), what="the tree stands")
    until(lambda: len([pid for pid in sleepers(run) if comm(pid) == "sleep"]) >= 4, what="four sleepers")
    return run, sleepers(run)


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return None


def test_term_ends_the_whole_tree_before_the_release_c16(broker, runner, name):
    run, tree = start_tree(runner, broker.pawld.address, name)
    assert len(tree) >= 5
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert [pid for pid in tree if alive(pid)] == []
    assert free(broker.api, name)


def test_lease_loss_ends_the_whole_tree_c16(broker, runner, name):
    run, tree = start_tree(runner, broker.pawld.address, name, "--ttl", "6s")
    broker.api.must("brk", name, reason="test")
    assert run.wait() == LOST
    assert [pid for pid in tree if alive(pid)] == []


def test_what_cmd_leaves_behind_is_ended_before_the_release_c16(broker, runner, world, name):
    go = os.path.join(world.folder(), "go")
    run, tree = start_tree(runner, broker.pawld.address, name, end=f"while ! [ -e {go} ]; do sleep 0.01; done; exit 4")
    tree = [pid for pid in tree if alive(pid)]
    open(go, "wb").close()
    assert run.wait() == 4
    assert [pid for pid in tree if alive(pid)] == []
    assert free(broker.api, name)


def test_a_tree_that_ignores_term_gets_kill_c16(broker, runner, name):
    deaf = 'trap "" TERM; sleep 600 & sleep 600 & echo ready; wait'
    run = runner(broker.pawld.address, name, "--ttl", "6s", "--grace", "200ms", command=["sh", "-c", deaf])
    until(lambda: "ready" in run.stdout() and len(sleepers(run)) == 3, what="the tree stands")
    tree = sleepers(run)
    broker.api.must("brk", name, reason="test")
    assert run.wait() == LOST
    assert [pid for pid in tree if alive(pid)] == []


def test_kill_after_a_signal_that_is_ignored_c16(broker, runner, name):
    deaf = 'trap "" TERM; sleep 600 & echo ready; wait; sleep 600'
    run = runner(broker.pawld.address, name, "--kill-after", "300ms", command=["sh", "-c", deaf])
    until(lambda: "ready" in run.stdout(), what="CMD is ready")
    tree = sleepers(run)
    run.signal(signal.SIGTERM)
    assert run.wait() == 137
    assert [pid for pid in tree if alive(pid)] == []
    assert free(broker.api, name)


def test_without_kill_after_cmd_may_take_its_time(broker, runner, name):
    slow = 'trap "sleep 4; exit 9" TERM; echo ready; while :; do sleep 0.05; done'
    run = runner(broker.pawld.address, name, "--ttl", "3s", command=["sh", "-c", slow])
    until(lambda: "ready" in run.stdout(), what="CMD is ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 9


def test_what_is_closed_is_closed_for_cmd_and_nobody_elses(broker, runner, name):
    """Broken: what pawl opens first gets the number of stderr, and what it says goes there, to pawld even."""
    look = "[ -L /proc/$$/fd/2 ] || echo it is closed; exec sleep 600"
    run = runner(broker.pawld.address, name, stderr_to="&-", command=["sh", "-c", look])
    until(lambda: "it is closed" in run.stdout(), what="CMD has it closed")
    assert os.readlink(f"/proc/{run.pid}/fd/2") == "/dev/null"
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_few_descriptors_are_said_or_are_enough(broker, name):
    """Broken: with hardly enough descriptors pawl can't see that CMD has ended, and renews the lease for ever."""
    codes = set()
    for limit in range(6, 20):  # below, it can't be loaded or open what it begins with
        code, _, err = cli("run", "--retry", "100ms", "--ttl", "5s", name, "--", "sh", "-c", "sleep 0.1 & exit 7", server=broker.pawld.address,
                           prefix=["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"])
        assert code == 7 or (code in (FAILED, LOST, UNAVAILABLE, 127) and err), (limit, code, err)
        assert free(broker.api, name), (limit, code, err)
        codes.add(code)
    assert 7 in codes


def test_children_from_before_are_left_alone(broker, name):
    """`sh -c 'other & exec pawl run ...'`: what pawl inherits is not CMD's."""
    script = f'sleep 600 >/dev/null & echo $!; exec "{binary()}" run {name} -- true'
    done = subprocess.run(["sh", "-c", script], env=cli_environment(broker.pawld.address), stdout=subprocess.PIPE, timeout=30, check=True,
                          stderr=subprocess.DEVNULL)
    pid = int(done.stdout)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert free(broker.api, name)


def test_a_pawl_that_is_killed_takes_cmd_with_it(broker, runner, name):
    run = runner(broker.pawld.address, name).until_beating()
    pid = run.cmd_pid()
    run.kill9()
    until(lambda: not alive(pid), what="CMD has ended")


# ---- what it costs


def test_overhead_is_told(broker, name):
    """As a warning, so that it is seen; not asserted, since it is a property of the machine and its load."""
    env = cli_environment(broker.pawld.address)

    def took(argv):
        started = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdin=subprocess.DEVNULL)
        return time.perf_counter() - started

    plain, under = [], []
    for _ in range(40):
        plain.append(took(["true"]))
        under.append(took([binary(), "run", name, "--", "true"]))
    cost_ms = (statistics.median(under) - statistics.median(plain)) * 1000
    warnings.warn(f"pawl run costs {cost_ms:.1f} ms over plain true (median of 40)", stacklevel=1)
