"""Given tables of whole days, when they are asked for again, then only what is new is worked out."""

from commonpool.app.bill_days import TABLES_MAX, BillDays
from commonpool.config import Config, parse_sources
from commonpool.core.billing import Bill, BillLine, HourlySum
from tests.api.fakes import sources

DAY = 86_400 * 10**9
CONFIG = parse_sources(sources())


class Days:
    """What there is to ask: every day costs one. `made` is what was worked out, `closed` how many hours are."""

    def __init__(self) -> None:
        self.kept = BillDays()
        self.made: list[tuple[int, int]] = []
        self.hours = 48

    def ask(self, end: int, by: str = "tenant", config: Config = CONFIG, start: int = 0) -> int:
        table = self.kept.table(
            config,
            start * DAY,
            end * DAY,
            [by],
            {"tenant": ["a"]},
            self._make,
            lambda at_ns: self.hours if at_ns else 0,
        )
        assert (table.start_ns, table.end_ns) == (start * DAY, end * DAY)
        return table.total_micro

    def _make(self, start_ns: int, end_ns: int) -> Bill:
        start, end = start_ns // DAY, end_ns // DAY
        self.made.append((start, end))
        line = BillLine("", ("a",), {}, {"used": end - start}, {}, {}, {}, HourlySum(("a",)))
        return Bill(start_ns, end_ns, ("tenant",), (line,))


def test_a_day_more_is_all_that_is_worked_out() -> None:
    days = Days()
    assert [days.ask(3), days.ask(3), days.ask(4), days.ask(4)] == [3, 3, 4, 4]
    assert days.made == [(0, 3), (3, 4)]


def test_less_than_is_known_is_worked_out_and_not_kept() -> None:
    days = Days()
    assert [days.ask(4), days.ask(2), days.ask(4)] == [4, 2, 4]
    assert days.made == [(0, 4), (0, 2)]


def test_another_split_and_another_start_are_tables_of_their_own() -> None:
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
    for number in range(TABLES_MAX + 1):
        days.ask(100, start=number)
    days.made.clear()
    days.ask(100, start=TABLES_MAX)
    assert days.made == []
    days.ask(100, start=0)
    assert days.made == [(0, 100)]
