"""Given sums of whole days, when they are asked for again, then only what is new is worked out."""

from commonpool.app.whole_days import SUMS_MAX, WholeDays
from commonpool.config import Config, parse_sources
from tests.api.fakes import sources

DAY = 86_400 * 10**9
CONFIG = parse_sources(sources())


class Days:
    """What there is to ask: every day costs one. `made` is what was worked out, `closed` how many hours are."""

    def __init__(self) -> None:
        self.kept = WholeDays[list[int]](lambda some, more: some + more, len)
        self.made: list[tuple[int, int]] = []
        self.hours = 48

    def ask(self, end: int, of: str = "tenant", config: Config = CONFIG, start: int = 0) -> int:
        found = self.kept.get(config, start * DAY, end * DAY, of, self._make, lambda at_ns: self.hours if at_ns else 0)
        assert found == list(range(start, end))
        return len(found)

    def _make(self, start_ns: int, end_ns: int) -> list[int]:
        start, end = start_ns // DAY, end_ns // DAY
        self.made.append((start, end))
        return list(range(start, end))


def test_a_day_more_is_all_that_is_worked_out() -> None:
    days = Days()
    assert [days.ask(3), days.ask(3), days.ask(4), days.ask(4)] == [3, 3, 4, 4]
    assert days.made == [(0, 3), (3, 4)]


def test_less_than_is_known_is_worked_out_and_not_kept() -> None:
    days = Days()
    assert [days.ask(4), days.ask(2), days.ask(4)] == [4, 2, 4]
    assert days.made == [(0, 4), (0, 2)]


def test_another_split_and_another_start_are_sums_of_their_own() -> None:
    days = Days()
    assert [days.ask(3), days.ask(3, "app"), days.ask(3, start=1)] == [3, 3, 2]
    assert days.made == [(0, 3), (0, 3), (1, 3)]


def test_what_was_closed_late_is_worked_out_again() -> None:
    days = Days()
    days.ask(3)
    days.hours = 49
    days.ask(3)
    assert days.made == [(0, 3), (0, 3)]


def test_with_another_configuration_all_is_forgotten() -> None:
    days = Days()
    days.ask(3)
    days.ask(3, config=parse_sources(sources()))
    assert days.made == [(0, 3), (0, 3)]


def test_so_many_are_kept_and_no_more() -> None:
    days = Days()
    for number in range(SUMS_MAX + 1):
        days.ask(100, start=number)
    days.made.clear()
    days.ask(100, start=SUMS_MAX)
    assert days.made == []
    days.ask(100, start=0)
    assert days.made == [(0, 100)]
