"""The guard of Redis (client/guards/redis) on a real redis-server."""

import os
import random
import shlex
import subprocess
import threading

import pytest

from databases import guard_file, readme_blocks
from pawltest.redis import RespError

ROUNDS = 5000 if os.environ.get("PAWL_TEST_LONG") == "1" else 500
GREATEST = 2**53 - 1


@pytest.fixture
def store(redis):
    if int(redis.info("server")["redis_version"].split(".")[0]) < 7:
        pytest.skip("this redis-server has no functions (7.0)")
    assert redis.command("FUNCTION", "LOAD", guard_file("redis", "pawl.lua")) == "pawl"
    return redis


def claim(store, fence, token):
    return store.command("FCALL", "pawl_fence", 1, fence, token)


def write(store, fence, token, *commands, keys=()):
    words = [word for command in commands for word in (len(command), *command)]
    return store.command("FCALL", "pawl_write", 1 + len(keys), fence, *keys, token, *words)


def refused(code, function, *args, **named):
    with pytest.raises(RespError) as caught:
        function(*args, **named)
    assert str(caught.value).startswith(code + " "), caught.value
    return str(caught.value)


def test_equal_and_greater_tokens_are_taken_and_smaller_ones_refused(store):
    for token, code in ((5, None), (5, None), (7, None), (6, "PAWL1"), (7, None), (GREATEST - 1, None), (GREATEST, None),
        (GREATEST - 1, "PAWL1"), (9, "PAWL1"),
            (10, "PAWL1")):
        if code:
            assert refused(code, claim, store, "f", token).startswith(f"PAWL1 stale fencing token {token}: f has taken ")
            refused(code, write, store, "f", token, ("SET", "k", "stale"), keys=("k",))
        else:
            assert claim(store, "f", token) == "OK"
            assert write(store, "f", token, ("SET", "k", token), keys=("k",)) == ["OK"]
    assert store.command("GET", "f") == str(GREATEST) == store.command("GET", "k")
    for i in range(200):
        claim(store, f"many:{i}", 1000 - i)
    assert [store.command("GET", f"many:{i}") for i in range(200)] == [str(1000 - i) for i in range(200)]


def test_what_is_no_token_is_refused_and_nothing_is_written(store):
    claim(store, "f", 5)
    for token in ("", "0", "-1", "+6", " 6", "6 ", "6\n", "06", "6.0", "6e0", "0x6", "nan", "inf", "six", GREATEST + 1, "9" * 16,
        "9" * 400, b"\x00", b"6\x00", "nil"):
        refused("PAWL2", claim, store, "f", token)
        refused("PAWL2", write, store, "f", token, ("SET", "k", "1"), keys=("k",))
    assert store.command("GET", "f") == "5" and store.command("EXISTS", "k") == 0


def test_a_fence_that_holds_something_else_refuses_everybody(store):
    """Broken: a damaged fence is taken for none."""
    for damage in ("abc", "", "5.5", "-1"):
        store.command("SET", "f", damage)
        refused("PAWL2", claim, store, "f", 9)
    store.command("DEL", "f")
    store.command("HSET", "f", "a", "b")
    refused("WRONGTYPE", claim, store, "f", 9)


def test_several_commands_are_one_step_and_their_replies_come_back(store):
    replies = write(store, "f", 5, ("SET", "k", b"a\r\n\xff"), ("GET", "none"), ("INCRBY", "n", 7), ("LPUSH", "l", "x", "y"),
        ("LRANGE", "l", 0, -1), keys=("k", "n", "l"))
    assert replies == ["OK", None, 7, 2, ["y", "x"]]


def test_a_malformed_call_writes_nothing(store):
    """Broken: a wrong count is noticed when half of the commands have run, or after the fence has moved."""
    claim(store, "f", 5)
    for arguments in ((), (6,), (6, 1), (6, 0), (6, 3, "SET", "k"), (6, 3, "SET", "k", "v", 2), (6, 3, "SET", "k", "v", "x", "GET"),
        (6, "3.0", "SET", "k", "v"),
            (6, -1, "SET"), (6, 99999, "SET")):
        with pytest.raises(RespError):
            store.command("FCALL", "pawl_write", 1, "f", *arguments)
    for keys in ((), ("f", "g")):
        with pytest.raises(RespError):
            store.command("FCALL", "pawl_fence", len(keys), *keys, 6)
    assert store.command("GET", "f") == "5" and store.command("EXISTS", "k") == 0


def test_a_command_that_fails_leaves_what_ran_before_it(store):
    """As the README says: Redis undoes nothing. The fence has moved, so nobody older writes behind it."""
    store.command("SET", "text", "x")
    with pytest.raises(RespError):
        write(store, "f", 6, ("SET", "k", "1"), ("INCR", "text"), ("SET", "k", "2"), keys=("k", "text"))
    assert (store.command("GET", "k"), store.command("GET", "f")) == ("1", "6")
    refused("PAWL1", claim, store, "f", 5)


def test_racing_rounds(store):
    """500 rounds of two writers at once: claim, read, write one more than was read. Broken: a stale write after a fresh one, a fence that
    went down."""
    barrier = threading.Barrier(2)
    problems = []

    def go(index):
        try:
            conn = store.connect()
            rng = random.Random(index)
            for i in range(ROUNDS):
                fence, token = f"race:{i // 10}", 100 + 2 * i + (index + i) % 2
                barrier.wait(60)
                try:
                    if rng.random() < 0.5:
                        conn.command("FCALL", "pawl_fence", 1, fence, token)
                    conn.command("FCALL", "pawl_write", 3, fence, "journal", "count", token, 3, "RPUSH", "journal", f"{i // 10} {token}",
                        2, "INCR", "count")
                except RespError as error:
                    assert str(error).startswith("PAWL1 ") and token % 2 == 0, error
            conn.close()
        except BaseException as error:  # the other thread must not wait for ever
            problems.append(repr(error))
            barrier.abort()

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    written = [tuple(map(int, line.split())) for line in store.command("LRANGE", "journal", 0, -1)]
    assert len(written) == int(store.command("GET", "count"))
    assert {100 + 2 * i + 1 for i in range(ROUNDS)} <= {token for _, token in written}, "a fresh write was refused"
    for group in range(ROUNDS // 10):
        tokens = [token for g, token in written if g == group]
        assert tokens == sorted(tokens) and store.command("GET", f"race:{group}") == str(tokens[-1])


def test_the_functions_and_fences_survive_a_restart_with_the_data(store):
    """Broken: after a restart of Redis writers find no function, or the fence is gone while the data are there."""
    write(store, "f", 8, ("SET", "k", "v"), keys=("k",))
    store.restart(keep_data=True)
    refused("PAWL1", claim, store, "f", 7)
    assert claim(store, "f", 8) == "OK" and store.command("GET", "k") == "v"
    assert store.command("TTL", "f") == -1, "a fence must not expire"


def test_the_setup_by_the_command_line(store):
    """The line at the head of pawl.lua, on a server that has the library already."""
    claim(store, "f", 4)
    done = subprocess.run(["redis-cli", "-h", store.host, "-p", str(store.port), "-x", "FUNCTION", "LOAD", "REPLACE"],
        input=guard_file("redis", "pawl.lua"),
        text=True, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "pawl"), done
    refused("PAWL1", claim, store, "f", 3)
    done = subprocess.run(["redis-cli", "-e", "-h", store.host, "-p", str(store.port), "FCALL", "pawl_write", "2", "f", "k", "3", "3",
        "SET", "k", "v"],
        text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode != 0 and "PAWL1 stale fencing token 3" in done.stdout + done.stderr, done


def test_what_the_readme_says_to_type(store):
    (claim_form, write_form) = readme_blocks("redis", "text")
    command, reply = claim_form.splitlines()
    assert store.command(*shlex.split(command)) == reply
    command, *replies = write_form.splitlines()
    store.command("HSET", "acct:{acct:17}", "balance", "110")
    assert [f"{i}) (integer) {reply}" for i, reply in enumerate(store.command(*shlex.split(command)), 1)] == replies
    assert store.command("HGET", "acct:{acct:17}", "balance") == "160"
