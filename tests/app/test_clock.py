"""The product's clock: it never goes back, not even behind what an earlier run has noted."""

import time

from commonpool.app.clock import Clock


def test_it_is_the_machines_time() -> None:
    before = time.time_ns()
    clock = Clock(before - 5)
    assert clock.behind_ns == 0
    assert before <= clock() <= time.time_ns() + 10**9
    assert clock() <= clock()


def test_where_the_machines_time_is_behind_what_was_noted_it_goes_on_from_there() -> None:
    noted = time.time_ns() + 3600 * 10**9
    clock = Clock(noted)
    assert 3500 * 10**9 < clock.behind_ns <= 3600 * 10**9
    assert noted <= clock() <= clock()
