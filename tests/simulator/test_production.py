"""What is simulated and measured is what serves: there is one Machine, and everybody imports it."""

from types import ModuleType

import pytest
from benchmarks import core_load, vtc_setups

from commonpool.app import product
from commonpool.core.machine import Machine
from commonpool.gateway import desk
from commonpool.simulator import checkers, policies, recording
from commonpool.simulator.policies import POLICIES, base, machine_for, preempt
from tests.simulator.worlds import two_tenants


@pytest.mark.parametrize(
    "module",
    [product, desk, checkers, policies, base, preempt, recording, core_load, vtc_setups],
    ids=lambda module: module.__name__,
)
def test_the_live_machine_is_the_simulated_and_the_measured_one(module: ModuleType) -> None:
    assert vars(module)["Machine"] is Machine
    assert Machine.__module__ == "commonpool.core.machine"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_drives_that_machine_and_no_kind_of_it(name: str) -> None:
    assert type(machine_for(POLICIES[name], two_tenants())) is Machine
