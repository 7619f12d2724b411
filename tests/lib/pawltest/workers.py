"""Which test is run when, where several workers of pytest-xdist run them.

xdist hands out tests in bunches of neighbours, a sixteenth of all to begin with. Tests of one file are much alike here: a bunch is over in a second or takes
minutes, and the last one keeps one worker busy while the others have nothing to do. So each worker is given one test at a time (it is told two, since
it must know what comes next to know which fixtures go on), and files with few tests come first: those are the ones whose tests are long. The many quick
ones fill what is left at the end.
"""

import collections

import pytest

AHEAD = 2  # the test that runs and the one that comes next


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with few tests first; within a file nothing changes."""
    sizes = collections.Counter(item.fspath for item in items)
    items.sort(key=lambda item: (sizes[item.fspath], str(item.fspath)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """For --dist load, which is what -n means; whole files (--dist loadfile) are left to xdist."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler.load import LoadScheduling

    class OneAtATime(LoadScheduling):
        def check_schedule(self, node, duration=0):
            if node.shutting_down:
                return
            if self.pending:
                self._send_tests(node, max(0, AHEAD - len(self.node2pending[node])))
            else:
                node.shutdown()

        def _send_tests(self, node, num):
            super()._send_tests(node, min(num, AHEAD))

    return OneAtATime(config, log)
