"""Given what tenants wanted for hours and days, when it is looked at, then it is known which guarantees lie idle."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core import underuse, views
from commonpool.core.effects import Effect, Start
from commonpool.core.english import english
from commonpool.core.events import Released
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.underuse import Demand, Underuse
from tests.core.worlds import World, policy, tenant

H = NS_PER_HOUR
START = 1000 * H


def world(peaks: list[int], **more: int) -> World:
    """Tenant a with a guarantee of 4 GPUs, 1 of them reserved, and these peaks of demand, hour by hour."""
    here = World(policy(tenant("a", 4000, **({"reserved": 1000} | more)), tenant("b", 0)), replicas=0)
    for hour, peak in enumerate(peaks):
        here.machine.state.forecasts["a"].observe(peak, START + hour * H)
        here.machine.state.forecasts["a"].observe(0, START + hour * H + 1)
    here.now = START + len(peaks) * H
    return here


def found(here: World) -> list[Underuse]:
    return underuse.underuse(here.machine.state, here.now)


def test_three_days_below_half_are_under_use() -> None:
    (one,) = found(world([500] * 71 + [1500]))
    assert one == Underuse("a", "main", 4000, 72, 1500, 513, 0, 2200)


def test_what_ended_it_before_is_no_evidence_and_longer_is_more() -> None:
    (one,) = found(world([4000, 2000, *[300] * 100]))
    assert (one.hours, one.peak_milli_gpu, one.offered_milli_gpu) == (100, 300, 3000)  # one is reserved


def test_half_is_not_under_use() -> None:
    assert found(world([2000, *[100] * 71])) == []
    assert found(world([2000, *[100] * 72])) != []


def test_less_than_three_days_is_a_weekend() -> None:
    assert found(world([0] * 71)) == []


def test_the_hour_that_runs_ends_it() -> None:
    here = world([100] * 80)
    assert found(here) != []
    here.machine.state.forecasts["a"].observe(2000, here.now + 1)
    assert found(here) == []


def test_who_has_no_guarantee_or_never_asked_under_one_that_is_all_reserved() -> None:
    assert found(world([0] * 80, reserved=4000)) == []
    assert [one.tenant for one in found(world([0] * 80))] == ["a"]


def test_what_is_released_is_not_offered_again_and_can_be_taken_back() -> None:
    here = world([300] * 80)
    (one,) = found(here)
    here.send(Released("a", one.offered_milli_gpu))
    assert views.tenants(here.machine.state)[0].guaranteed == 1000
    assert found(here) == []
    here.send(Released("a", 0))
    assert found(here) == [one]


def test_what_is_in_use_or_reserved_cannot_be_released() -> None:
    here = world([0])
    assert underuse.releasable(here.machine.state, "a") == 3000
    here.submit("j", "a", 2500)
    assert underuse.releasable(here.machine.state, "a") == 1500
    assert underuse.releasable(here.machine.state, "b") == 0


def test_the_sentence_says_what_to_do() -> None:
    (one,) = found(world([250] * 96))
    assert english(one.said) == (
        "Tenant a has wanted 0.25 gpu at most for 4 days, of 4 gpu guaranteed; "
        "`commonpool release a` would give 3 gpu to everybody."
    )


def test_who_never_asks_is_known_to_want_nothing_from_the_start_on() -> None:
    here = World(policy(tenant("a", 1000)), replicas=0)
    underuse.recall(here.machine.state, (), START)
    assert underuse.underuse(here.machine.state, START + 71 * H) == []
    (one,) = underuse.underuse(here.machine.state, START + 72 * H)
    assert (one.hours, one.peak_milli_gpu, one.offered_milli_gpu) == (72, 0, 1000)


def test_looking_leaves_what_happens_as_it_is() -> None:
    def happened(*, looking: bool) -> list[Effect]:
        here = World(policy(tenant("a", 4000), tenant("b", 0)), replicas=0)
        for hour in range(170):
            here.now = START + hour * H
            if looking:
                underuse.demands(here.machine.state, here.now)
                underuse.underuse(here.machine.state, here.now)
            if hour == 160:
                here.submit("own", "a", 4000, expected_ns=H)
            elif hour == 161:
                here.finish("own")
        here.submit("borrows", "b", 3500, expected_ns=H)
        return here.effects

    effects = happened(looking=False)
    assert happened(looking=True) == effects
    assert "borrows" not in {each.job_id for each in effects if isinstance(each, Start)}, "a may want it again"


def test_what_was_kept_is_known_again() -> None:
    here = world([300] * 80)
    kept = underuse.demands(here.machine.state, here.now)
    assert kept == [Demand("a", START // H, (300,) * 80)]
    after = World(policy(tenant("a", 4000, reserved=1000), tenant("b", 0)), replicas=0)
    underuse.recall(after.machine.state, [*kept, Demand("gone", 5, (1,))], here.now)
    after.now = here.now
    assert found(after) == found(here)
    assert underuse.demands(after.machine.state, here.now) == kept


@given(st.lists(st.sampled_from([0, 100, 900, 1999, 2000, 3999, 5000]), max_size=200))
def test_an_offer_leaves_what_was_wanted_and_what_is_reserved(peaks: list[int]) -> None:
    here = world(peaks)
    for one in found(here):
        assert one.hours >= underuse.HOURS_MIN
        assert max(peaks[-one.hours :]) == one.peak_milli_gpu < one.guaranteed_milli_gpu / 2
        assert one.guaranteed_milli_gpu - one.offered_milli_gpu >= max(1000, one.peak_milli_gpu * 1.2)
        assert one.offered_milli_gpu % underuse.STEP_MILLI_GPU == 0
        assert len(peaks) == one.hours or peaks[-one.hours - 1] >= 2000
