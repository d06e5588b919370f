"""A recording replays to the same effects, byte for byte, and a changed one is found out."""

import io

import pytest

from commonpool.simulator.cluster import Failures
from commonpool.simulator.recording import Recorder, ReplayError, replay
from commonpool.simulator.run import run
from tests.core.worlds import S
from tests.simulator.worlds import MS, Witness, cluster, crowd, two_tenants


def recorded() -> list[bytes]:
    log = io.BytesIO()
    failures = Failures(mtbf_ns=30 * S, repair_ns=5 * S)
    run(crowd(1, 200, "ab", 100 * MS), Recorder(two_tenants(), log), cluster(2, failures), Witness(), seed=1)
    return log.getvalue().splitlines(keepends=True)


def test_it_replays_byte_for_byte() -> None:
    lines = recorded()
    assert recorded() == lines
    assert replay(lines) == len(lines) - 1 > 400


def test_a_line_that_differs_is_named() -> None:
    lines = recorded()
    number = next(n for n, line in enumerate(lines) if b'"Dispatch"' in line)
    lines[number] = lines[number].replace(b'"wait_ns":', b'"wait_ns":7')
    with pytest.raises(ReplayError, match=f"line {number + 1}: at .* the machine answers"):
        replay(lines)


@pytest.mark.parametrize("lines", [[], [b"{}"], [b"nothing"]])
def test_what_is_no_recording_is_said_so(lines: list[bytes]) -> None:
    with pytest.raises(ReplayError, match="line 1 is not one of a recording"):
        replay(lines)


def test_a_cut_line_is_named() -> None:
    lines = recorded()
    lines[5] = lines[5][:20]
    with pytest.raises(ReplayError, match="line 6 is not one of a recording"):
        replay(lines)
