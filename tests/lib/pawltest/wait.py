"""Waiting for a state: look, and look again until a deadline. A test that needs a pause to pass is a test that fails on a busy machine."""

import time

DEADLINE_S = 30.0  # generous: reached only when something is broken


def until(predicate, deadline_s=DEADLINE_S, what="a condition", every_s=0.02):
    """Calls predicate() until it returns something true, and returns that. An AssertionError says what did not come and what was seen
    last."""
    end = time.monotonic() + deadline_s
    while True:
        seen = predicate()
        if seen:
            return seen
        if time.monotonic() >= end:
            raise AssertionError(f"not within {deadline_s:g} s: {what} (last seen: {seen!r})")
        time.sleep(every_s)


def always(predicate, for_s, what="a condition", every_s=0.02):
    """The opposite: a thing that must stay true for a while. For what must *not* happen there is no event to wait for."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        seen = predicate()
        if not seen:
            raise AssertionError(f"did not stay true: {what} (seen: {seen!r})")
        time.sleep(every_s)
