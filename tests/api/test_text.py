"""Numbers as people read them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.api import text


@pytest.mark.parametrize(
    ("milli_gpu", "shown"), [(0, "0"), (2000, "2"), (125, "0.125"), (1500, "1.5"), (12_345_678, "12,345.678")]
)
def test_gpus(milli_gpu: int, shown: str) -> None:
    assert text.gpus(milli_gpu) == shown


@pytest.mark.parametrize(
    ("wait_ns", "shown"),
    [
        (None, "–"),
        (0, "0.00 s"),
        (1, "<0.01 s"),
        (4_999_999, "<0.01 s"),
        (5_000_000, "0.01 s"),
        (420_000_000, "0.42 s"),
        (3_600_000_000_000, "3,600.00 s"),
    ],
)
def test_wait(wait_ns: int | None, shown: str) -> None:
    assert text.wait(wait_ns) == shown


@given(st.lists(st.integers(0, 10**25)))
def test_gpu_seconds_add_up_as_shown(milli_gpu_ns: list[int]) -> None:
    column = [Decimal(f"{value}E-12") for value in milli_gpu_ns]
    (total,) = text.rounded_milliseconds([Decimal(f"{sum(milli_gpu_ns)}E-12")])
    assert sum(text.rounded_milliseconds(column)) == total


def test_gpu_seconds_and_money() -> None:
    assert text.gpu_seconds([Decimal("1234.5"), Decimal("0.0004")]) == ["1,234.500", "0.000"]
    assert text.money(1_234_500_000) == "1,234.500000"


def test_moment_and_age() -> None:
    assert text.moment(None) == "–"
    assert text.moment(1_700_000_000 * 10**9) == "2023-11-14 22:13:20Z"
    ages = [text.age(0, seconds * 10**9) for seconds in (0, 119, 120, 7199, 7200, 172_799, 172_800)]
    assert ages == ["0 s", "119 s", "2 m", "119 m", "2 h", "47 h", "2 d"]
    assert text.age(5, 0) == "0 s"
