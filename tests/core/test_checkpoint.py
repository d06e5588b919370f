"""Jobs that can save their state are asked to when a lender needs back what they borrow; nothing is cut."""

from typing import Any

from commonpool.core.effects import Checkpoint, Effect
from commonpool.core.events import JobResumed
from commonpool.core.model import Job, Outcome
from commonpool.core.reclaim import CHECKPOINT_NS
from tests.core.worlds import S, World, policy, started, tenant


def two(**more: Any) -> World:
    """Tenants `a` and `b` with 2 GPUs each."""
    return World(policy(tenant("a", 2000), tenant("b", 2000), milli_gpu=4000, **more), replicas=0)


def saver(here: World, name: str, milli_gpu: int, tenant_name: str = "a") -> list[Effect]:
    """A job that can save its state."""
    return here.submit(name, tenant_name, milli_gpu, reclaim="checkpoint")


def asked(effects: list[Effect]) -> list[str]:
    return [effect.job_id for effect in effects if isinstance(effect, Checkpoint)]


def test_it_is_asked_when_its_lender_waits_and_waits_again_itself_until_there_is_room() -> None:
    here = two()
    saver(here, "own", 2000)
    saver(here, "lent", 2000)
    assert asked(here.tick()) == []
    assert started(here.submit("b0", "b", 2000)) == []
    assert here.tick() == [Checkpoint("lent", 1, CHECKPOINT_NS)]
    assert started(here.later(2).finish("lent", Outcome.CANCELLED, retry=True)) == ["b0"]
    here.finish("b0")
    assert started(here.later(120).tick()) == ["lent"]  # until then its lender is expected to come again
    assert here.attempts["lent"] == 2


def test_one_that_cannot_save_its_state_is_not_asked_and_goes_on() -> None:
    here = two()
    here.submit("own", "a", 2000)
    here.submit("lent", "a", 2000)
    here.submit("b0", "b", 2000)
    assert asked(here.tick()) == []
    assert here.running == ["own", "lent"]


def test_one_that_was_asked_is_not_asked_again_and_may_go_on() -> None:
    here = two()
    saver(here, "all", 4000)
    here.submit("b0", "b", 2000)
    assert asked(here.tick()) == ["all"]
    for _ in range(5):
        assert asked(here.later(1).tick()) == []
    assert started(here.finish("all")) == ["b0"]


def test_after_another_start_it_may_be_asked_again() -> None:
    here = two()
    saver(here, "all", 4000)
    here.submit("b0", "b", 2000)
    assert asked(here.tick()) == ["all"]
    here.finish("all", Outcome.CANCELLED, retry=True)
    here.finish("b0")
    assert started(here.later(120).tick()) == ["all"]
    here.submit("b1", "b", 1000)
    assert here.tick() == [Checkpoint("all", 2, CHECKPOINT_NS)]


def test_no_more_are_asked_than_the_lender_needs_the_newest_first() -> None:
    here = two()
    here.submit("own", "a", 2000)
    for n in range(4):
        saver(here, f"lent{n}", 500)
    here.submit("b0", "b", 1000)
    assert asked(here.tick()) == ["lent3", "lent2"]
    assert asked(here.later(1).tick()) == []  # they are on their way
    here.submit("b1", "b", 500)
    assert asked(here.later(1).tick()) == ["lent1"]


def test_those_that_go_on_all_the_same_are_made_up_for_by_others() -> None:
    here = two()
    here.submit("own", "a", 2000)
    for n in range(4):
        saver(here, f"lent{n}", 500)
    here.submit("b0", "b", 1000)
    assert asked(here.tick()) == ["lent3", "lent2"]
    assert asked(here.later(3).tick()) == ["lent1", "lent0"]
    here.finish("lent1", Outcome.CANCELLED, retry=True)
    assert started(here.finish("lent3")) == ["b0"]


def test_one_within_its_guarantee_is_never_asked() -> None:
    here = two()
    saver(here, "own", 2000)
    here.submit("lent", "a", 2000)
    here.submit("b0", "b", 2000)
    assert asked(here.tick()) == []


def test_nothing_is_asked_while_the_lender_has_room_itself() -> None:
    here = two()
    saver(here, "all", 3000)
    assert started(here.submit("b0", "b", 1000)) == ["b0"]
    assert asked(here.tick()) == []


def test_one_of_an_earlier_run_is_asked_like_any_other() -> None:
    here = two()
    job = Job("all", "a", "app", "main", "batch", 4000, reclaim="checkpoint")
    here.send(JobResumed(job, 3, 0, 0))
    here.submit("b0", "b", 2000)
    assert here.tick() == [Checkpoint("all", 3, CHECKPOINT_NS)]


def test_one_that_has_ended_is_not_asked() -> None:
    here = two()
    saver(here, "all", 4000)
    here.finish("all")
    here.submit("rest", "a", 4000)
    here.submit("b0", "b", 2000)
    assert asked(here.later(1).tick()) == []
    assert here.now == S


def test_those_that_may_still_be_asked_are_known() -> None:
    here = two()
    here.submit("own", "a", 2000)
    saver(here, "lent0", 1000)
    saver(here, "lent1", 1000)
    assert here.machine.savers == ["lent0", "lent1"]
    here.submit("b0", "b", 1000)
    assert asked(here.tick()) == ["lent1"]
    assert here.machine.savers == ["lent0"]
    here.finish("lent0")
    assert here.machine.savers == []
