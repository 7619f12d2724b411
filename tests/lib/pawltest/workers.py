"""Which test is run when, where several workers of pytest-xdist run them.

xdist hands out tests in bunches of neighbours, a sixteenth of all to begin with. Tests of one file are much alike here: a bunch is over in a second or takes
minutes, and the last one keeps one worker busy while the others have nothing to do. So each worker is given one test at a time (it is told two, since
it must know what comes next to know which fixtures go on). It stays with its file as long as that has tests, and then takes a file that nobody works at: what
a module's fixtures have started is used again, and the sweeps of test_races.py, which want a processor to be punctual, don't run beside each other. Where no
such file is left, it helps where the fewest are.

Files with few tests come first, since their tests are the long ones; the many quick ones fill what is left at the end.
"""

import collections

import pytest

AHEAD = 2  # the test that runs and the one that comes next


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with few tests first; within a file nothing changes."""
    sizes = collections.Counter(item.fspath for item in items)
    items.sort(key=lambda item: (sizes[item.fspath], str(item.fspath)))


def next_of(pending, file_of, mine, others):
    """Which of the pending tests (in their order) a worker takes whose last one was of the file `mine`, while the others are at the files `others`."""
    left = collections.Counter(file_of(test) for test in pending)
    if mine in left:
        chosen = mine
    else:
        crowd = collections.Counter(others)
        chosen = min(left, key=lambda file: (crowd[file], -left[file] if crowd[file] else 0))  # among equals the first
    return next(test for test in pending if file_of(test) == chosen)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """For --dist load, which is what -n means; whole files (--dist loadfile) are left to xdist."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler.load import LoadScheduling

    class OneAtATime(LoadScheduling):
        def __init__(self, *args):
            super().__init__(*args)
            self.at = {}  # node -> the file of the last test that it was given

        def file_of(self, index):
            return self.collection[index].partition("::")[0]

        def check_schedule(self, node, duration=0):
            if node.shutting_down:
                return
            if self.pending:
                self._send_tests(node, AHEAD - len(self.node2pending[node]))
            else:
                node.shutdown()

        def remove_node(self, node):
            self.at.pop(node, None)
            return super().remove_node(node)

        def _send_tests(self, node, num):
            for _ in range(min(num, AHEAD, len(self.pending))):
                others = [file for other, file in self.at.items() if other is not node]
                index = next_of(self.pending, self.file_of, self.at.get(node), others)
                self.at[node] = self.file_of(index)
                self.pending.remove(index)
                self.node2pending[node].append(index)
                node.send_runtest_some([index])

    return OneAtATime(config, log)
