"""What Redis may hold when no lock is held: the shard's own few keys (P8)."""

import re

from pawltest.wait import until

_OWN = re.compile(r"pawl:\{0\}:(fence|incarnation|recovery|node:[^:]+)\Z")


def residue(redis):
    """Keys that should not be there."""
    return sorted(key for key in redis.keys() if not _OWN.match(key))


def until_clean(redis, deadline_s=30.0):
    until(lambda: residue(redis) == [], deadline_s, "no key left but the shard's own")


def lock_keys_without_end(redis, prefix="pawl:{0}:lock:"):
    """Lock keys that would stay for ever (C09)."""
    return [key for key in redis.keys(prefix + "*") if redis.command("PTTL", key) == -1]
