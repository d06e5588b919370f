"""Forecasts: peaks by the hour of the week, eight weeks of them, and what is said of hours never seen."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.forecast import HOURS_A_WEEK, Forecast
from commonpool.core.model import NS_PER_HOUR

H = NS_PER_HOUR
WEEK = HOURS_A_WEEK * H
START = 1_790_000_000 * 1_000_000_000


def test_nothing_observed_is_nothing_known() -> None:
    assert Forecast().quantile(START, H) is None


def test_an_hour_keeps_its_peak_and_demand_stays_until_it_changes() -> None:
    forecast = Forecast()
    forecast.observe(300, 0)
    forecast.observe(900, H // 2)
    forecast.observe(100, H // 2 + 1)
    forecast.observe(0, 3 * H + 1)
    assert [forecast.quantile(WEEK + n * H, 1) for n in range(5)] == [900, 100, 100, 100, 0]


def test_the_worst_hour_that_the_horizon_touches_counts() -> None:
    forecast = Forecast()
    for hour, demand in enumerate([0, 10, 70, 20]):
        forecast.observe(demand, hour * H)
    forecast.observe(0, 4 * H)
    now = WEEK
    assert [forecast.quantile(now, n * H) for n in (1, 2, 3, 100)] == [0, 10, 70, 70]
    assert forecast.quantile(now + H, 2 * H) == 70
    assert forecast.quantile(now + H, 50 * WEEK) == 70


def test_one_exceptional_week_of_eight_is_softened() -> None:
    forecast = Forecast()
    for week in range(8):
        forecast.observe(800 if week == 3 else 100, week * WEEK)
        forecast.observe(0, week * WEEK + H)
    # Between the largest and the next, at 6.3 of the places 0 to 7: 100 + 0.3 × 700.
    assert forecast.quantile(8 * WEEK, H) == 310


def test_an_hour_never_seen_is_as_the_worst_of_the_last_day() -> None:
    forecast = Forecast()
    forecast.observe(500, START)
    forecast.observe(200, START + 2 * H)
    assert forecast.quantile(START + 3 * H, 40 * H) == 500
    assert forecast.quantile(START + 40 * H, 5 * H) == 200


def test_the_hour_that_runs_can_only_raise_it() -> None:
    forecast = Forecast()
    forecast.observe(500, START)
    forecast.observe(0, START + 1)
    forecast.observe(100, START + WEEK)
    assert forecast.quantile(START + WEEK, 1) == 500
    forecast.observe(700, START + WEEK + 1)
    assert forecast.quantile(START + WEEK + 2, 1) == 700


def test_what_is_older_than_eight_weeks_is_forgotten() -> None:
    forecast = Forecast()
    forecast.observe(900, START)
    forecast.observe(10, START + H)
    assert forecast.quantile(START + 8 * WEEK, 1) == 277  # once 900 and seven times 10
    assert forecast.quantile(START + 9 * WEEK, 1) == 10
    forecast.observe(20, START + 5000 * WEEK)
    assert forecast.quantile(START + 5000 * WEEK, WEEK) == 20


@given(
    changes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30 * H)), min_size=1, max_size=40),
    horizon=st.integers(0, 2 * WEEK),
)
def test_it_is_what_the_weeks_peaks_say(changes: list[tuple[int, int]], horizon: int) -> None:
    forecast = Forecast()
    now, demand = START, 0
    peaks: dict[int, int] = {}
    for amount, after in changes:
        for hour in range(now // H, (now + after) // H + 1):
            peaks[hour] = max(peaks.get(hour, 0), demand)
        now, demand = now + after, amount
        peaks[now // H] = max(peaks.get(now // H, 0), demand)
        forecast.observe(amount, now)
    running = now // H
    hours = range(running, min((now + max(1, horizon) - 1) // H, running + HOURS_A_WEEK - 1) + 1)
    recent = max(peaks.get(hour, 0) for hour in range(running - 23, running + 1))
    expected = [peaks[running]]
    for hour in hours:
        seen = sorted(peaks[hour - w * HOURS_A_WEEK] for w in range(1, 9) if hour - w * HOURS_A_WEEK in peaks)
        tenths = 9 * (len(seen) - 1)
        low, high = seen[tenths // 10 : tenths // 10 + 2] if len(seen) > 1 else (seen or [recent]) * 2
        expected.append(low + -(-(tenths % 10) * (high - low) // 10))
    assert forecast.quantile(now, horizon) == max(expected)


def hourly(peaks: list[int], start: int = START) -> Forecast:
    forecast = Forecast()
    for hour, demand in enumerate(peaks):
        forecast.observe(demand, start + hour * H)
        forecast.observe(0, start + hour * H + 1)
    return forecast


@given(
    changes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30 * H)), max_size=10),
    looks=st.lists(st.integers(0, 10 * WEEK), min_size=1, max_size=4),
)
def test_peaks_are_looked_at_without_a_trace(changes: list[tuple[int, int]], looks: list[int]) -> None:
    forecast, untouched = Forecast(), Forecast()
    now = START
    for demand, step in changes:
        now += step
        for look in looks:
            forecast.peaks(START + look)  # before this change or after it
        forecast.observe(demand, now)
        untouched.observe(demand, now)
    now += looks[0]
    seen = forecast.peaks(now)
    assert forecast.quantile(now, WEEK) == untouched.quantile(now, WEEK)
    assert seen == forecast.peaks(now) == untouched.peaks(now), "kept up by the quantile or not"


def test_peaks_are_told_from_the_first_hour_on() -> None:
    assert Forecast().peaks(START) == (0, [])
    assert hourly([3, 1, 2]).peaks(START + 4 * H) == (START // H, [3, 1, 2, 0, 0])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=400))
def test_what_is_restored_forecasts_as_before(peaks: list[int]) -> None:
    before = hourly(peaks)
    now = START + len(peaks) * H
    first, known = before.peaks(now)
    after = Forecast()
    after.restore(first, known[:-1], now)
    assert after.peaks(now) == (first, known)
    assert [after.quantile(now, n * H) for n in (1, 30, 200)] == [before.quantile(now, n * H) for n in (1, 30, 200)]
    assert after.usual(now, 100 * H) == before.usual(now, 100 * H)


def test_hours_that_nobody_saw_count_as_the_worst_of_the_day_before() -> None:
    forecast = Forecast()
    forecast.restore(START // H, [9] * 10 + [5] + [2] * 23, START + 40 * H)
    assert forecast.peaks(START + 40 * H) == (START // H, [9] * 10 + [5] + [2] * 23 + [5] * 6 + [0])


def test_nothing_is_restored_over_what_is_observed_nor_from_the_future() -> None:
    forecast = Forecast()
    forecast.restore(START // H + 1, [7], START + H)
    assert forecast.peaks(START) == (0, [])
    forecast.observe(1, START)
    forecast.restore(0, [7], START)
    assert forecast.peaks(START) == (START // H, [1])


def test_no_more_than_eight_weeks_are_restored() -> None:
    forecast = Forecast()
    now = START + 9 * WEEK
    forecast.restore(START // H, [1] * HOURS_A_WEEK, now)
    first, peaks = forecast.peaks(now)
    assert (first, len(peaks)) == (now // H - 8 * HOURS_A_WEEK, 8 * HOURS_A_WEEK + 1)
