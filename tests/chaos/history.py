"""The history of a chaos run: JSON lines, one for each call of a client, each write to a guarded register and each begin and end of a fault.

All processes of a run append to one file; a line is one write, so lines never mix. Times are seconds of time.monotonic(), which is one clock for
all processes of a machine. Each record says what was known from outside: the time before a thing was done and the time after.

    {"kind": "call", "verb": "acquire", "lock", "lease", "client", "node", "ask_ttl_ms", "wait_ms", "sent", "got",
     "status": 200 or null (no reply was read), "error", "token", "ttl_ms", "waited_ms"}
    {"kind": "write", "lock", "lease", "token", "seq", "accepted", "before", "after"}
    {"kind": "fault", "id", "what", "phase": "begin" or "end", "before", "after", ...}
    {"kind": "note", "what", ...}    for people; the checker reads none of it
"""

import json
import os
import threading
import time


def now():
    return time.monotonic()


class History:
    """Appends records to the file."""

    def __init__(self, path):
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add(self, kind, **record):
        record["kind"] = kind
        os.write(self._fd, (json.dumps(record) + "\n").encode("utf-8"))

    def close(self):
        os.close(self._fd)


class Register:
    """A store that does what fencing asks of it: it refuses a token that is less than one it has seen."""

    def __init__(self, lock, history):
        self.lock = lock
        self._history = history
        self._mutex = threading.Lock()
        self._greatest = 0
        self._seq = 0

    def write(self, lease, token):
        before = now()
        with self._mutex:
            accepted = token >= self._greatest
            if accepted:
                self._greatest = token
            self._seq += 1
            seq = self._seq
        self._history.add("write", lock=self.lock, lease=lease, token=token, seq=seq, accepted=accepted, before=before, after=now())
        return accepted


def read(path):
    """The records, in the order in which they were written."""
    with open(path, "rb") as f:
        return [json.loads(line) for line in f]
