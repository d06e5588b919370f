"""The core's time at a gateway: never before the core's own, and as near to it as the quickest call was quick."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.cluster.times import DRIFT, CoreTime

MS = 10**6
delays = st.integers(0, 1000 * MS)


class Clocks:
    """The true time is the core's; the gateway's is behind it by `behind`, or ahead of it."""

    def __init__(self, behind: int) -> None:
        self.core = 10**18
        self._behind = behind
        self.time = CoreTime(self.gateway)

    def gateway(self) -> int:
        return self.core - self._behind

    def call(self, there: int, back: int) -> None:
        """A call takes so long to the core, and its answer so long back."""
        sent = self.gateway()
        self.core += there
        then = self.core
        self.core += back
        self.time.answered(sent, then)


@given(st.integers(-(10**15), 10**15), delays, st.lists(st.tuples(delays, delays), min_size=1))
def test_it_is_never_early_and_as_late_as_the_quickest_call_to_the_core(
    behind: int, welcomed: int, calls: list[tuple[int, int]]
) -> None:
    clocks = Clocks(behind)
    then = clocks.core
    clocks.core += welcomed
    clocks.time.begin(then)
    assert clocks.time() == clocks.core - welcomed
    passed = clocks.core
    quickest = calls[0][0]
    for there, back in calls:
        clocks.call(there, back)
        quickest = min(quickest, there)
        assert 0 <= clocks.time() - clocks.core <= quickest + (clocks.core - passed) // DRIFT


def test_a_quick_call_of_long_ago_gives_way_as_clocks_drift() -> None:
    clocks = Clocks(0)
    clocks.call(MS, MS)
    clocks.call(2 * MS, 0)
    assert clocks.time() - clocks.core == MS
    clocks.core += 2 * MS * DRIFT
    clocks.call(2 * MS, 0)
    assert clocks.time() - clocks.core == 2 * MS


def test_another_core_has_another_time() -> None:
    clocks = Clocks(0)
    clocks.call(0, 0)
    clocks.time.begin(clocks.core + 5)
    assert clocks.time() == clocks.core + 5
    clocks.call(7, 0)
    assert clocks.time() == clocks.core + 7
