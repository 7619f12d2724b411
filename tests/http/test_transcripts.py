"""Every transcript in transcripts/, whole and byte by byte."""

from pathlib import Path

import pytest
from pawltest.http import open_socket
from transcript import play, read_cases

CASES = [case for path in sorted(Path(__file__).parent.glob("transcripts/*.txt")) for case in read_cases(path)]


@pytest.fixture(scope="module")
def shared_probe(tmp_path_factory):
    from conftest import Probe

    probe = Probe(tmp_path_factory.mktemp("transcripts"))
    yield probe
    probe.stop()


def test_there_are_transcripts():
    assert len(CASES) > 50


@pytest.mark.parametrize("dribble", [False, True], ids=["whole", "dribbled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_transcript(case, dribble, shared_probe):
    sock = open_socket(shared_probe.address)
    try:
        play(case, sock, dribble)
    finally:
        sock.close()
