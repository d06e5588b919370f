"""Given a machine that breaks a law, the checker says which; given the real one, nothing."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from commonpool.core.effects import Dispatch, Effect, Settle
from commonpool.core.events import Event
from commonpool.core.machine import Machine
from commonpool.simulator.checkers import Checked, LawBrokenError
from commonpool.simulator.contract import Preempt
from commonpool.simulator.run import run
from tests.core.worlds import S, policy, tenant
from tests.simulator.worlds import Witness, cluster, crowd, two_tenants


class Bent:
    """A machine whose effects are bent before anybody sees them."""

    def __init__(self, machine: Machine, bend: Callable[[list[Effect]], Sequence[Effect]]) -> None:
        self._machine = machine
        self._bend = bend

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        return self._bend(self._machine.handle(event, now))


def simulate(bend: Callable[[list[Effect]], Sequence[Effect]], machine: Machine | None = None) -> None:
    rules = two_tenants()
    machine = machine or Machine(rules)
    checked = Checked(Bent(machine, bend), machine, policy=rules)
    checked.finish(run(crowd(1, 60, "ab", S // 50), checked, cluster(2), Witness()))


def test_the_machine_breaks_no_law() -> None:
    simulate(lambda effects: effects)


def test_what_is_given_back_twice_is_found() -> None:
    def twice(effects: list[Effect]) -> list[Effect]:
        return [effect for each in effects for effect in ([each, each] if isinstance(each, Settle) else [each])]

    with pytest.raises(LawBrokenError, match="was given back twice"):
        simulate(twice)


def test_what_nobody_asked_for_is_found() -> None:
    def other(effects: list[Effect]) -> list[Effect]:
        return [
            msgspec.structs.replace(each, request_id="ghost") if isinstance(each, Dispatch) else each
            for each in effects
        ]

    with pytest.raises(LawBrokenError, match="ghost was started, and nobody asked for it"):
        simulate(other)


def test_a_wait_beyond_the_promise_is_found() -> None:
    def later(effects: list[Effect]) -> list[Effect]:
        return [
            msgspec.structs.replace(each, wait_ns=121 * S) if isinstance(each, Dispatch) else each for each in effects
        ]

    with pytest.raises(LawBrokenError, match="waited 121000000000 ns, its max_wait is 120000000000 ns"):
        simulate(later)


def test_books_that_do_not_agree_are_found() -> None:
    machine = Machine(two_tenants())

    def lose(effects: list[Effect]) -> list[Effect]:
        if any(isinstance(each, Dispatch) for each in effects):
            machine.state.quotas["main"].tenants["a"].use += 1
        return effects

    with pytest.raises(LawBrokenError, match=r"pool main counts \d+ milli_gpu in use, its tenants \d+"):
        simulate(lose, machine)


def test_use_above_a_cap_is_found() -> None:
    machine = Machine(policy(tenant("a", 2000), tenant("b", 2000)))

    def cut(effects: list[Effect]) -> list[Effect]:
        if any(isinstance(each, Dispatch) for each in effects):
            for node in machine.state.quotas["main"].tenants.values():
                node.cap = 0
        return effects

    with pytest.raises(LawBrokenError, match=r"uses \d+ milli_gpu, its cap is 0"):
        simulate(cut, machine)
