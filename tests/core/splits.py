"""Who answers for each milli_gpu of a pool at an instant: what the books of an hour must come to in the end.

What runs is its tenant's, borrowed or not; the loan beside it says between whom it is settled. What is idle is its
owner's: the tenant's that it is guaranteed to, the group's that owns it beyond its members, the platform's where nobody
owns it. What an owner has lent is not idle.
"""

import msgspec

from commonpool.core.lending import Loans
from commonpool.core.pricing import round_lines
from commonpool.core.quota import Quota


class Split(msgspec.Struct, frozen=True):
    """A pool's capacity at one moment, in milli_gpu, by account; accounts with nothing are left out.

    `used` and `idle` are by tenant, `idle_of_groups` by group, `idle_unowned` is the platform's.
    """

    used: dict[str, int]
    idle: dict[str, int]
    idle_of_groups: dict[str, int]
    idle_unowned: int

    @property
    def total(self) -> int:
        """The pool's capacity, or what runs if that is more, as it can be after a cut."""
        return sum(self.used.values()) + sum(self.idle.values()) + sum(self.idle_of_groups.values()) + self.idle_unowned


def split(quota: Quota, loans: Loans) -> Split:
    """Split a pool's capacity among the accounts.

    Use over quota (a guarantee was cut while it ran) is no loan, so nobody lends what it takes: it takes it from the
    idle capacity of the platform first, then from that of all other owners in proportion.
    """
    used = {name: node.use for name, node in quota.tenants.items() if node.use}
    owned: dict[tuple[str, str], int] = {}
    for name, node in quota.tenants.items():
        owned["tenant", name] = max(0, node.guaranteed - node.use) - loans.lent(name)
    for name, node in quota.groups.items():
        owned["group", name] = node.own - loans.lent_by_group(name)
    owned = {owner: idle for owner, idle in owned.items() if idle > 0}
    idle = max(0, quota.capacity - quota.use)
    claimed = sum(owned.values())
    if claimed > idle:
        lines = round_lines({owner: part * idle for owner, part in owned.items()}, claimed)
        owned = {owner: part for owner, part in lines.items() if part}
    return Split(
        used=used,
        idle={name: part for (kind, name), part in owned.items() if kind == "tenant"},
        idle_of_groups={name: part for (kind, name), part in owned.items() if kind == "group"},
        idle_unowned=idle - sum(owned.values()),  # what is of nobody else
    )
