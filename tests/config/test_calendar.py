"""Hours tile the days, days the months, whatever the zone does with its clocks."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config.calendar import DATE_FIRST, DATE_LAST, Calendar, parse_date, parse_zone

S = 1_000_000_000
HOUR = 3600 * S
BERLIN = Calendar("Europe/Berlin")

# Whole hours and parts of them from UTC, clocks that are changed at midnight (Beirut, Santiago), by two hours (Troll),
# twice for Ramadan (Casablanca), and zones that have moved for good (Casey, Vostok, Volgograd).
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Asia/Beirut",
    "America/Santiago", "Antarctica/Troll", "Africa/Casablanca", "Antarctica/Casey", "Antarctica/Vostok",
    "Europe/Volgograd", "Pacific/Apia", "Pacific/Kiritimati", "Etc/GMT+12",
]  # fmt: skip
UNEVEN = (
    "puts its clocks forward by a part of an hour, which the hours of a bill cannot follow; "
    "choose a zone that does so by whole hours, or UTC"
)
days = st.dates(DATE_FIRST + timedelta(days=1), DATE_LAST - timedelta(days=40))


@pytest.mark.parametrize(
    ("name", "start_s", "hours"),
    [
        ("2026-11-03", 1_793_660_400, 24),
        ("2026-03-29", 1_774_738_800, 23),  # clocks are put forward
        ("2026-10-25", 1_792_879_200, 25),  # and back
    ],
)
def test_a_day(name: str, start_s: int, hours: int) -> None:
    start, end = BERLIN.day(name)
    assert (start, end) == (start_s * S, start_s * S + hours * HOUR)
    assert BERLIN.day_of(start) == BERLIN.day_of(end - 1) == name
    assert BERLIN.day_of(end) != name


@pytest.mark.parametrize(
    ("calendar", "name", "hours"),
    [
        (BERLIN, "2026-11", 30 * 24),
        (BERLIN, "2026-03", 31 * 24 - 1),
        (BERLIN, "2026-10", 31 * 24 + 1),
        (BERLIN, "2028-02", 29 * 24),
        (Calendar(), "2026-10", 31 * 24),
    ],
)
def test_a_month(calendar: Calendar, name: str, hours: int) -> None:
    start, end = calendar.month(name)
    assert end - start == hours * HOUR
    assert calendar.month_of(start) == calendar.month_of(end - 1) == name
    assert calendar.day_of(start) == f"{name}-01"


def test_a_month_begins_at_local_midnight() -> None:
    assert BERLIN.month("2026-12")[0] == 1_796_079_600 * S  # 2026-11-30T23:00Z
    assert Calendar().month("2026-12")[0] == 1_796_083_200 * S


def test_midnight_that_is_left_out() -> None:
    """In Santiago clocks are put forward from 24:00 to 1:00: the day begins at 1:00."""
    calendar = Calendar("America/Santiago")
    start, end = calendar.day("2026-09-06")
    assert calendar.local_hour(start) == 1
    assert end - start == 23 * HOUR


def test_the_hour_that_comes_twice() -> None:
    start, _ = BERLIN.day("2026-10-25")
    assert [BERLIN.local_hour(start + hour * HOUR) for hour in range(25)] == [0, 1, 2, 2, *range(3, 24)]


@pytest.mark.parametrize(
    ("zone", "minutes"), [("UTC", 0), ("Europe/Berlin", 0), ("Asia/Kolkata", 30), ("Asia/Kathmandu", 15)]
)
def test_the_grid_of_hours(zone: str, minutes: int) -> None:
    calendar = Calendar(zone)
    assert calendar.hour_offset_ns == minutes * 60 * S
    start, _ = calendar.day("2026-11-03")
    assert calendar.hour_of(start) == calendar.hour_of(start + HOUR - 1) == start
    assert calendar.hour_of(start - 1) == start - HOUR


@given(st.sampled_from(ZONES), days)
def test_days_tile_the_month(zone: str, day: date) -> None:
    calendar = Calendar(parse_zone(zone))
    start, end = calendar.month(day.isoformat()[:7])
    names = calendar.days(start, end)
    bounds = [calendar.day(name) for name in names]
    assert [bound[0] for bound in bounds] == [start, *(bound[1] for bound in bounds[:-1])]
    assert bounds[-1][1] == end
    assert {calendar.month_of(bound[0]) for bound in bounds} == {day.isoformat()[:7]}
    assert len(names) == len(set(names)) >= 28


@given(st.sampled_from(ZONES), days, st.integers(0, 24 * HOUR))
def test_hours_tile_the_day(zone: str, day: date, after: int) -> None:
    calendar = Calendar(parse_zone(zone))
    start, end = calendar.day(day.isoformat())
    assert (end - start) % HOUR == 0
    assert calendar.hour_of(start) == start
    at = start + after % (end - start)
    assert start <= calendar.hour_of(at) <= at < calendar.hour_of(at) + HOUR <= end
    assert calendar.day_of(at) == day.isoformat()
    assert calendar.days(at, at + 1) == [day.isoformat()]


def test_there_are_no_days_in_nothing() -> None:
    assert BERLIN.days(5, 5) == []


@pytest.mark.parametrize("name", ["2026-13", "2026-1", "2026-00", "1999-01", "2026-11-03", "november", "2026-11\n", ""])
def test_what_is_no_month(name: str) -> None:
    with pytest.raises(ValueError, match=r"month"):
        BERLIN.month(name)


@pytest.mark.parametrize("name", ["2026-02-30", "2026-2-3", "2019-12-31", "2100-01-01", "2026-11", "03.11.2026", ""])
def test_what_is_no_date(name: str) -> None:
    with pytest.raises(ValueError, match=r"date"):
        parse_date(name)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Europe/Berln", '"Europe/Berln" is not a time zone; did you mean Europe/Berlin?'),
        ("?", '"?" is not a time zone; write its name in the IANA database, like Europe/Berlin or UTC'),
        ("Europe", '"Europe" is not a time zone; did you mean Europe/Rome?'),
        ("../UTC", '"../UTC" is not a time zone; did you mean UTC?'),
        ("Australia/Lord_Howe", f'"Australia/Lord_Howe" {UNEVEN}'),
    ],
)  # fmt: skip
def test_what_is_no_zone_of_a_bill(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        parse_zone(text)
    assert str(caught.value) == sentence
