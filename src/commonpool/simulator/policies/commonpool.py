"""commonpool: the operator's policy as it is."""

from commonpool.core.model import Policy
from commonpool.simulator.policies.base import SharingPolicy


def _rules(policy: Policy) -> Policy:
    return policy


COMMONPOOL = SharingPolicy(
    "commonpool",
    "Guarantees first, idle ones lent and returned without interrupting anyone, and refused early what would be late.",
    _rules,
    promises=True,
)
