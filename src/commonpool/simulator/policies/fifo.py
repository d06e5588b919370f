"""fifo: no isolation."""

from commonpool.core.model import Policy
from commonpool.simulator.policies.base import Queues, SharingPolicy, as_one, owner_of

_TIER = "any"


def _rules(policy: Policy) -> Policy:
    return as_one(policy, {_TIER: 0})


def _queues(policy: Policy) -> Queues:
    return {(t.name, tier): (owner_of(t.pool), _TIER) for t in policy.tenants.values() for tier in t.priority}


FIFO = SharingPolicy(
    "fifo", "One queue for everybody, first come, first served; nobody is guaranteed anything.", _rules, _queues
)
