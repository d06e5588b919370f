"""The circuit of a replica, and the budget of second attempts, by themselves."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.breaker import (
    FAILURES_MAX,
    OPEN_MAX_NS,
    OPEN_MIN_NS,
    RETRIES_MIN,
    RETRY_ONE_IN,
    WINDOW,
    Breaker,
    Circuit,
    Retries,
)

S = 1_000_000_000


def opened(now: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_MAX):
        breaker.failed(now)
    return breaker


def test_after_one_failure_it_rests_until_the_next_tick() -> None:
    breaker = Breaker()
    breaker.failed(0)
    assert (breaker.circuit, breaker.takes) == (Circuit.CLOSED, False)
    breaker.tick(0)
    assert breaker.takes


def test_failures_in_a_row_open_it_and_a_success_between_them_begins_anew() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(0)
    breaker.succeeded()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(0)
    assert breaker.circuit is Circuit.CLOSED
    breaker.failed(0)
    assert (breaker.circuit, breaker.takes) == (Circuit.OPEN, False)


def test_half_of_the_last_attempts_open_it_though_others_succeed_between_them() -> None:
    breaker = Breaker()
    for _ in range(WINDOW // 2 - 1):
        breaker.failed(0)
        breaker.succeeded()
    before = breaker.circuit
    breaker.failed(0)
    assert (before, breaker.circuit) == (Circuit.CLOSED, Circuit.OPEN)


def test_what_is_longer_ago_than_the_window_counts_no_more() -> None:
    breaker = Breaker()
    for _ in range(WINDOW // 2 - 1):
        breaker.failed(0)
        breaker.succeeded()
    for _ in range(WINDOW):
        breaker.succeeded()
    breaker.tick(0)
    assert not breaker.troubled
    breaker.failed(0)
    assert breaker.circuit is Circuit.CLOSED


def test_one_request_is_the_probe_and_its_success_closes_it() -> None:
    breaker = opened()
    breaker.tick(OPEN_MIN_NS - 1)
    assert breaker.circuit is Circuit.OPEN
    breaker.tick(OPEN_MIN_NS)
    assert (breaker.circuit, breaker.takes) == (Circuit.HALF_OPEN, True)
    breaker.started("probe")
    assert not breaker.takes
    breaker.tick(OPEN_MIN_NS + S)
    assert not breaker.takes
    breaker.succeeded()
    assert (breaker.circuit, breaker.takes, breaker.troubled) == (Circuit.CLOSED, True, False)


def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_a_minute() -> None:
    breaker = opened()
    lengths = []
    now = 0
    for _ in range(8):
        lengths.append(breaker.until - now)
        now = breaker.until
        breaker.tick(now)
        breaker.started("probe")
        breaker.failed(now)
    assert lengths[:6] == [OPEN_MIN_NS << n for n in range(5)] + [OPEN_MAX_NS]
    assert set(lengths[6:]) == {OPEN_MAX_NS}
    assert breaker.failing


def test_a_probe_whose_client_left_says_nothing_and_another_follows() -> None:
    breaker = opened()
    assert not breaker.failing
    breaker.tick(breaker.until)
    breaker.started("probe")
    breaker.left("another one, which ran there before")
    assert not breaker.takes
    breaker.left("probe")
    assert (breaker.circuit, breaker.takes) == (Circuit.HALF_OPEN, True)


def test_errors_that_it_answers_count_when_they_are_answered_to_two_tenants_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.accused("a", 0)
    assert (breaker.circuit, breaker.takes) == (Circuit.CLOSED, True)
    breaker.succeeded()
    breaker.accused("b", 0)
    assert breaker.takes
    for tenant in "aba":
        breaker.accused(tenant, 0)
    assert breaker.circuit is Circuit.OPEN


STEPS = st.lists(
    st.tuples(st.sampled_from(["started", "succeeded", "failed", "left", "tick"]), st.integers(0, 5 * S)), max_size=200
)


@given(STEPS)
def test_it_takes_nothing_while_open_and_one_at_a_time_until_one_succeeded(steps: list[tuple[str, int]]) -> None:
    breaker = Breaker()
    now, number = 0, 0
    probes: set[str] = set()  # those that run while it is half open
    for what, ns in steps:
        now += ns
        if what == "started":
            if not breaker.takes:
                continue
            number += 1
            if breaker.circuit is Circuit.HALF_OPEN:
                assert not probes
                probes.add(str(number))
            breaker.started(str(number))
        elif what == "left":
            breaker.left(str(number))
            probes.discard(str(number))
        elif what == "succeeded":
            breaker.succeeded()
        elif what == "failed":
            breaker.failed(now)
        else:
            breaker.tick(now)
        if breaker.circuit is not Circuit.HALF_OPEN:
            probes.clear()
        assert not (breaker.circuit is Circuit.OPEN and breaker.takes)
        assert breaker.until <= now + OPEN_MAX_NS
        assert breaker.troubled or breaker.takes
    breaker.tick(now + OPEN_MAX_NS)
    assert breaker.takes or probes  # it is never left out for ever


@given(st.lists(st.sampled_from(["accused", "tick", "started"]), max_size=300))
def test_errors_answered_to_one_tenant_alone_take_it_from_nobody(steps: list[str]) -> None:
    breaker = Breaker()
    for now, what in enumerate(steps):
        if what == "accused":
            breaker.accused("a", now)
        elif what == "tick":
            breaker.tick(now)
        else:
            breaker.started(str(now))
        assert (breaker.circuit, breaker.takes) == (Circuit.CLOSED, True)


def test_what_ran_on_a_replica_may_move_once_and_then_one_in_ten() -> None:
    retries = Retries(64)
    assert sum(retries.take(0, 0, sure=True) for _ in range(100)) == 64
    assert sum(retries.take(1000, 0, sure=True) for _ in range(100)) == 64  # it keeps no more
    assert sum(retries.take(1000 + n, 0, sure=True) for n in range(200)) == 199 // RETRY_ONE_IN


def test_one_a_second_may_be_tried_again_however_little_is_asked() -> None:
    retries = Retries(1)
    assert sum(retries.take(0, 0, sure=True) for _ in range(100)) == RETRIES_MIN
    assert sum(retries.take(0, tenths * S // 10, sure=True) for tenths in range(1, 51)) == 5


def test_what_is_hardly_sure_to_help_leaves_half() -> None:
    retries = Retries(20)
    assert sum(retries.take(0, 0, sure=False) for _ in range(100)) == 10
    assert sum(retries.take(0, 0, sure=True) for _ in range(100)) == 10


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3 * S), st.booleans()), max_size=200), st.integers(1, 64))
def test_never_more_than_the_budget(steps: list[tuple[int, int, bool]], slots: int) -> None:
    retries = Retries(slots)
    started = now = taken = 0
    for more, ns, sure in steps:
        started += more
        now += ns
        taken += retries.take(started, now, sure=sure)
        assert taken <= max(RETRIES_MIN, slots) + started // RETRY_ONE_IN + now // S + 1
