"""Given the set-ups by which token counters were published, then the production machine is as fair as was published."""

import msgspec
import pytest
from benchmarks import vtc_setups
from benchmarks.vtc_setups import (
    AS_PRODUCED,
    CORRECTED,
    EIGHT,
    FCFS,
    GAP_BOUND,
    LEARNED,
    ON_OFF_BELOW,
    ON_OFF_OVER,
    PROMPTS_OUTPUTS,
    PUBLISHED_GAPS,
    PUBLISHED_SHARE_ERROR,
    SHORT_LONG,
    WEIGHTS,
    WEIGHTS_ALIKE,
    Charging,
    Gaps,
    Row,
    Setup,
)

GAP_FCFS, GAP_VTC, GAP_TRUTH = PUBLISHED_GAPS


def row(setup: Setup, charging: Charging, seconds: int | None = None) -> Row:
    short = msgspec.structs.replace(setup, seconds=seconds or setup.seconds)
    (found,) = vtc_setups.rows([short], [charging])
    return found


def test_eight_overloaded_clients_under_fcfs_come_as_far_apart_as_was_published() -> None:
    assert row(EIGHT, FCFS).gap_max == pytest.approx(GAP_FCFS, rel=0.1)


@pytest.mark.parametrize("charging", [LEARNED, CORRECTED], ids=lambda charging: charging.name)
def test_eight_overloaded_clients_come_no_farther_apart_than_with_the_published_oracle(charging: Charging) -> None:
    assert 0 < row(EIGHT, charging).gap_max <= GAP_TRUTH


@pytest.mark.parametrize("setup", [SHORT_LONG, ON_OFF_BELOW, ON_OFF_OVER], ids=lambda setup: setup.name)
def test_neither_short_requests_nor_pauses_bring_clients_farther_apart_than_was_published(setup: Setup) -> None:
    assert 0 < row(setup, LEARNED, seconds=180).gap_max <= GAP_VTC


def test_who_fills_the_whole_engine_keeps_its_counter_so_that_the_proved_bound_holds() -> None:
    assert 0 < row(PROMPTS_OUTPUTS, AS_PRODUCED).gap_max <= GAP_BOUND


@pytest.mark.parametrize("setup", [WEIGHTS, WEIGHTS_ALIKE], ids=lambda setup: setup.name)
def test_service_follows_the_weights(setup: Setup) -> None:
    errors = row(setup, LEARNED).share_errors
    assert len(errors) == 4
    assert max(abs(error) for error in errors) <= PUBLISHED_SHARE_ERROR


def test_the_engine_is_as_busy_whoever_decides() -> None:
    assert row(EIGHT, LEARNED, 120).tokens_per_s == pytest.approx(row(EIGHT, FCFS, 120).tokens_per_s, rel=0.02)


def test_the_same_seed_gives_the_same_row() -> None:
    assert row(SHORT_LONG, LEARNED, 30) == row(SHORT_LONG, LEARNED, 30)


def test_a_gap_is_what_one_got_more_than_another_per_weight_while_both_waited() -> None:
    gaps = Gaps([1, 2])
    gaps.served(0, 500)
    gaps.arrived(0)
    gaps.look()
    assert gaps.largest == 0  # only one waits

    gaps.arrived(1)
    gaps.look()
    gaps.served(1, 120)
    gaps.look()
    assert (gaps.now, gaps.largest) == (60, 60)

    gaps.dispatched(0)
    gaps.arrived(0)
    gaps.look()
    gaps.served(0, 7)
    gaps.look()
    assert (gaps.now, gaps.largest) == (7, 60)  # the first had nothing waiting for a moment
