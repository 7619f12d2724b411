"""`pawl run` and a lease that goes: C14, C15, C48, and never two CMDs at once.

Times are those that CMD itself writes. The last line of a CMD that was killed is at most 2 ms older than its end.
"""

import os
import signal
import time
import warnings

import pytest

from pawltest import stalled
from pawltest.cli import LOST, Runner, alive, now, overlaps, state
from pawltest.fixtures import LONG
from pawltest.wait import always, until
from pawltest.waiters import look, standing

TTL_S = 4.0  # a renewal may be 2.4 s late before anything is lost: that is what a busy machine has
TTL = "4s"
MARGIN_S, GRACE_S = TTL_S / 10, TTL_S / 6


class Site:
    """One Redis; the first runner goes through a proxy to a node of its own, everybody else through another node."""

    def __init__(self, world, recovery=False):
        self.redis = world.redis()
        args = [] if not recovery else ["--recovery-window", "3s"]
        self.first, self.second = world.pawld(self.redis, args), world.pawld(self.redis, args)
        host, _, port = self.first.address.rpartition(":")
        self.proxy = world.proxy((host, int(port)))
        self.server = self.proxy.http_address
        self.other = self.second.address
        self.api = self.second.api()


@pytest.fixture
def site(world):
    return Site(world)


def kill(site):
    site.first.kill9()


def stop(site):
    site.first.sigstop()


def drop(site):
    site.proxy.hole = True


def stall(site):
    site.proxy.stall_up = site.proxy.stall_down = True


def cut(site):
    site.proxy.slam = True
    site.proxy.cut()


def delete(site, name):
    site.redis.command("DEL", site.redis.lock_key(name))


SILENCES = {"killed": kill, "stopped": stop, "dropped": drop, "stalled": stall, "cut": cut}


def mend(site):
    site.proxy.hole = site.proxy.slam = site.proxy.stall_up = site.proxy.stall_down = False
    if site.first.running():
        site.first.sigcont()
        site.proxy.cut()
    else:
        site.first.start()
        host, _, port = site.first.address.rpartition(":")
        site.proxy.target = (host, int(port))


def lease_end(site, name):
    """When Redis lets go of it, on our clock; never later than the truth by more than the question took."""
    left_ms = site.redis.pttl(name)
    return now() + left_ms / 1000


# ---- C14: lost, and CMD must be gone before that


@pytest.mark.parametrize("how", sorted(SILENCES))
@pytest.mark.parametrize("kind", ["plain", "deaf"])
def test_without_answers_cmd_is_gone_before_the_end_c14(site, runner, name, how, kind):
    run = runner(site.server, name, "--ttl", TTL, how=kind).until_beating()
    # between two renewals, so that the end is known well: the answer to the last one has surely come, and the next one is not on its way
    until(lambda: 0.5 < TTL_S - site.redis.pttl(name) / 1000 < 0.9, what="the midst between two renewals")
    SILENCES[how](site)
    time.sleep(0.05)  # what was on its way arrives
    end = lease_end(site, name)
    assert run.wait() == LOST
    last = run.beats()[-1]
    assert not alive(run.cmd_pid())
    assert last < end, f"CMD lived {last - end:.3f} s beyond the lease"
    if kind == "plain":  # TERM came in time, and not long before it had to
        assert last <= end - MARGIN_S + 0.05
    assert last >= end - MARGIN_S - GRACE_S - 1.0, "CMD was stopped long before it had to be"
    assert "lost" in run.stderr()
    if site.first.running():
        mend(site)
    else:
        site.first.expect_exit(-9)


@pytest.mark.parametrize("where", [stalled.full_pipe, stalled.full_terminal])
@pytest.mark.parametrize("how", ["stopped", "deleted"])
def test_that_nobody_reads_what_is_said_does_not_keep_cmd_going_c14(site, world, runner, name, where, how):
    """Broken: stderr is a pipe or terminal whose reader has stalled (Ctrl-S, a pager), pawl waits for it with what it has to say of the lost lease, and CMD goes on
    beyond the lease's end."""
    path, kept = where(world)
    run = runner(site.server, name, "--ttl", TTL, stderr_to=path).until_beating()
    if how == "stopped":
        stop(site)
        time.sleep(0.05)  # what was on its way arrives
        end = lease_end(site, name)
    else:
        delete(site, name)
        end = now() + TTL_S
    assert run.wait() == LOST
    assert not alive(run.cmd_pid())
    assert run.beats()[-1] < end, "CMD lived beyond the lease"
    stalled.close(kept)
    site.first.sigcont()


def test_a_lease_that_was_deleted_is_noticed_at_the_next_renewal_c14(site, runner, name):
    run = runner(site.server, name, "--ttl", "8s").until_beating()
    token = run.token()
    deleted = now()
    delete(site, name)
    assert run.wait() == LOST
    assert run.beats()[-1] - deleted < 8 / 3 + 8 / 6 + 1.5  # not as late as at the lease's end
    assert site.api.must("acquire", name, ttl_ms=1000)["token"] > token


def test_cmd_is_gone_before_the_end_of_what_may_be_held_p11(site, runner, name):
    """Broken: renewals that can't help any more keep CMD going past the lease's end. And the delay keeps others out after it. (P10)"""
    asked = now()
    run = runner(site.server, name, "--ttl", TTL, "--max-hold", "6s", "--lock-delay", "1s").until_beating()
    left_ms = look(site.api, name)["max_hold_left_ms"]
    end = now() + left_ms / 1000  # it begins at the grant, and pawl may be slow to start
    assert run.wait() == LOST
    last = run.beats()[-1]
    assert asked + 6 - MARGIN_S - GRACE_S - 1.0 <= last < end
    assert "max_hold" in run.stderr()


def test_a_deaf_cmd_is_killed_after_the_grace_time_c14(site, runner, name):
    run = runner(site.server, name, "--ttl", "6s", "--grace", "1500ms", how="deaf").until_beating()
    site.api.must("brk", name, reason="test")
    until(lambda: "lost" in run.stderr(), what="pawl says that it is lost")
    told = now()
    assert run.wait() == LOST
    assert 0.5 < run.beats()[-1] - told < 5  # it was told a while before this test saw it


# ---- C15: one failed or ambiguous renewal is no reason


def test_an_outage_shorter_than_the_lease_does_not_disturb_cmd_c15(site, runner, name):
    run = runner(site.server, name, "--ttl", "18s").until_beating()
    kill(site)
    until(lambda: "trying again" in run.stderr(), what="a renewal has failed")
    began = now()
    always(run.running, 3, "pawl goes on")
    site.first.start()
    host, _, port = site.first.address.rpartition(":")
    site.proxy.target = (host, int(port))
    site.first.expect_exit(-9)
    until(lambda: site.redis.pttl(name) > 14_000, what="renewed")
    beats = [at for at in run.beats() if at >= began]
    assert max(b - a for a, b in zip(beats, beats[1:])) < 2.0
    assert alive(run.cmd_pid())
    assert run.stderr().count("trying again") >= 2  # the log shows the retries
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert not look(site.api, name)["held"]


def test_lost_replies_to_renewals_are_survived_c15(site, runner, name):
    run = runner(site.server, name, "--ttl", TTL).until_beating()
    for _ in range(4):
        site.proxy.lose_reply_to("/renew")
        until(site.proxy.reply_was_lost, what="a reply was lost")
    always(run.running, TTL_S + 0.5, "pawl goes on")
    assert "lost" not in run.stderr()
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_one_503_is_survived_c15(site, runner, name):
    """Redis is frozen until a renewal was answered 503, then goes on."""
    run = runner(site.server, name, "--ttl", "8s").until_beating()
    site.redis.sigstop()
    until(lambda: "trying again" in run.stderr(), what="a renewal has failed")
    site.redis.sigcont()
    until(lambda: site.redis.pttl(name) > 6000, what="renewed")
    assert alive(run.cmd_pid())
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_not_yours_stops_at_once_without_a_retry_c15(site, runner, name):
    run = runner(site.server, name, "--ttl", "9s").until_beating()
    site.api.must("brk", name, reason="test")
    broken = now()
    assert run.wait() == LOST
    assert run.beats()[-1] - broken < 9 / 3 + 1  # told at the next renewal, and not at the end
    assert "trying again" not in run.stderr()


# ---- C39: with a slow network, the idea of the end is never late


@pytest.mark.parametrize("up, down", [(0.25, 0.25), (0.5, 0.0), (0.0, 0.5)])
def test_delay_is_taken_off_c39(site, runner, name, up, down):
    site.proxy.delay_up_s, site.proxy.delay_down_s = up, down
    holder = site.api.must("acquire", name, ttl_ms=1500)
    run = runner(site.server, name, "--ttl", "3s", "--wait", "20s").until_beating()
    assert run.token() > holder["token"]
    drop(site)
    time.sleep(up + 0.05)
    end = lease_end(site, name)
    assert run.wait() == LOST
    assert run.beats()[-1] < end
    assert not alive(run.cmd_pid())


# ---- C48: pawl itself was stopped


@pytest.mark.parametrize("kind", ["plain", "deaf"])
def test_stopped_longer_than_its_ttl_c48(site, runner, name, kind):
    """The first thing on resume is to look at the clock: CMD is killed without a renewal."""
    run = runner(site.server, name, "--ttl", TTL, how=kind).until_beating()
    run.sigstop()
    until(lambda: site.redis.pttl(name) == -2, what="the lease has ended")
    successor = site.api.must("acquire", name, ttl_ms=60000)
    before = site.first.api().metrics()
    renewals = sum(v for k, v in before.items() if k.startswith("pawl_requests_total") and 'call="renew"' in k)
    resumed = now()
    run.sigcont()
    assert run.wait() == LOST
    assert run.beats()[-1] - resumed < 3
    assert not alive(run.cmd_pid())
    after = site.first.api().metrics()
    assert sum(v for k, v in after.items() if k.startswith("pawl_requests_total") and 'call="renew"' in k) == renewals
    assert look(site.api, name)["token"] == successor["token"]


def test_stopped_for_less_than_its_ttl_c48(site, runner, name):
    run = runner(site.server, name, "--ttl", "6s").until_beating()
    run.sigstop()
    always(lambda: True, 1.5)
    run.sigcont()
    until(lambda: site.redis.pttl(name) > 5500, what="renewed")
    assert alive(run.cmd_pid())
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_stopped_while_waiting_and_granted_meanwhile_c48(site, runner, name):
    """A grant that ran out while pawl was stopped is none: CMD is not started."""
    held = site.api.must("acquire", name, ttl_ms=60000)
    run = runner(site.server, name, "--ttl", "1s", "--wait", "60s")
    standing(site.api, name, 1)
    run.sigstop()
    site.api.must("release", name, lease_id=held["lease_id"])
    until(lambda: look(site.api, name)["held"], what="granted")
    until(lambda: not look(site.api, name)["held"], what="and run out")
    run.sigcont()
    assert run.wait() == LOST
    assert run.beats() == []


# ---- never two at once


ROUNDS = 50 if LONG else 4


@pytest.mark.deadline(1800)
@pytest.mark.parametrize("how", ["killed", "stopped", "dropped", "cut"])
def test_never_two_cmds_at_once_c14(site, name, how):
    """One runs, another waits; pawld goes silent for the first. The second takes over from the lease's end on."""
    folder = Runner(site.server, name, start=False)
    diary = os.path.join(folder.folder, "diary")
    runs = []
    site.first.expect_exit(-9)
    try:
        for i in range(ROUNDS):
            one = Runner(site.server, name, "--ttl", TTL, diary=diary, tag=f"one{i}", how="deaf" if i % 2 else "plain")
            runs.append(one)
            one.until_beating()
            two = Runner(site.other, name, "--ttl", TTL, "--wait", "60s", diary=diary, tag=f"two{i}")
            runs.append(two)
            standing(site.api, name, 1)
            SILENCES[how](site)
            assert one.wait() == LOST
            two.until_beating()
            assert two.token() > one.token()
            mend(site)
            two.signal(signal.SIGTERM)
            assert two.wait() == 143
            site.first.wait_ready()
        assert overlaps(diary) == []
        assert len({run.cmd_pid() for run in runs}) == 2 * ROUNDS
    finally:
        for run in runs:
            run.close()
        folder.close()


@pytest.mark.deadline(1800)
def test_never_two_cmds_at_once_when_redis_lost_the_lease_c14(world, name):
    """The lease and everything else is deleted in Redis (FLUSHALL): the node that granted it puts it back before anybody is granted the lock (P3),
    so CMD goes on and the one that waits goes on waiting."""
    site = Site(world, recovery=True)
    folder = Runner(site.server, name, start=False)
    diary = os.path.join(folder.folder, "diary")
    runs = []
    try:
        for i in range(max(1, ROUNDS // 3)):
            one = Runner(site.server, name, "--ttl", "12s", diary=diary, tag=f"one{i}")
            runs.append(one)
            one.until_beating(60)
            two = Runner(site.other, name, "--ttl", "12s", "--wait", "60s", diary=diary, tag=f"two{i}")
            runs.append(two)
            standing(site.api, name, 1)
            site.redis.command("FLUSHALL")
            until(lambda: site.redis.holds(name), what="the lease is put back")
            until(lambda: site.api.readyz() == 200, what="recovery is over")
            assert alive(one.cmd_pid())
            one.signal(signal.SIGTERM)
            assert one.wait() == 143
            two.until_beating()
            two.signal(signal.SIGTERM)
            assert two.wait() == 143
        assert overlaps(diary) == []
    finally:
        for run in runs:
            run.close()
        folder.close()


@pytest.mark.deadline(900)
def test_the_lock_alone_deleted_by_hand_ends_cmd_within_a_third_c14(site, name):
    """A lock key deleted by hand is outside of pawl's promises (P1): whoever asks next is granted the lock, and nothing tells the holder before its next
    renewal. What pawl run promises is how long that is at most, and that the later CMD has the greater token. How often two CMDs met is told."""
    folder = Runner(site.server, name, start=False)
    diary = os.path.join(folder.folder, "diary")
    runs = []
    try:
        for i in range(ROUNDS):
            one = Runner(site.server, name, "--ttl", TTL, diary=diary, tag=f"one{i}")
            runs.append(one)
            one.until_beating()
            two = Runner(site.other, name, "--ttl", TTL, "--wait", "60s", diary=diary, tag=f"two{i}")
            runs.append(two)
            standing(site.api, name, 1)
            deleted = now()
            delete(site, name)
            assert one.wait() == LOST
            assert one.beats()[-1] - deleted < TTL_S / 3 + GRACE_S + 1.0
            two.until_beating()
            assert two.token() > one.token()
            two.signal(signal.SIGTERM)
            assert two.wait() == 143
        warnings.warn(f"lock key deleted by hand: {len(overlaps(diary))} of {ROUNDS} times two CMDs met", stacklevel=1)
    finally:
        for run in runs:
            run.close()
        folder.close()


def test_state_helper_sees_the_stopped(site, runner, name):
    """What the tests above stand on."""
    run = runner(site.server, name).until_beating()
    run.sigstop()
    assert state(run.pid) == "T"
    run.sigcont()
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
