"""The policies that can be compared, by name, in the order in which reports show them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from commonpool.core.machine import Machine
from commonpool.core.model import Policy
from commonpool.simulator.contract import Decides
from commonpool.simulator.policies.base import Requeued, SharingPolicy
from commonpool.simulator.policies.commonpool import COMMONPOOL
from commonpool.simulator.policies.fifo import FIFO
from commonpool.simulator.policies.preempt import PREEMPT, Preempting
from commonpool.simulator.policies.priority import PRIORITY
from commonpool.simulator.policies.static import STATIC
from commonpool.simulator.policies.vtc import VTC

POLICIES: Final[Mapping[str, SharingPolicy]] = MappingProxyType(
    {policy.name: policy for policy in (FIFO, STATIC, PRIORITY, PREEMPT, VTC, COMMONPOOL)}
)

__all__ = ["POLICIES", "SharingPolicy", "machine_for", "prepared"]


def machine_for(sharing: SharingPolicy, policy: Policy) -> Machine:
    """The production machine, told to share as `sharing` does what the operator's `policy` describes."""
    return Machine(sharing.rules(policy))


def prepared(sharing: SharingPolicy, policy: Policy, machine: Machine) -> Decides:
    """What the simulation sends its events to: the machine, and around it only what this way of sharing adds."""
    if sharing.queues:
        return Requeued(machine, sharing.queues(policy))
    return Preempting(machine) if sharing.preempts else machine
