"""What has changed since the last look of what people are shown of the core: once a second, for all who look on."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from commonpool.core.state import State

What = Literal["tenants", "pools", "models", "jobs", "config"]
PARTS: Final[tuple[What, ...]] = ("tenants", "pools", "models", "jobs", "config")
_Pictures = dict[What, dict[str, Any]]  # by part, by name; of jobs by tenant


class Changed(msgspec.Struct, frozen=True):
    """The names of tenants, pools, models, and tenants with jobs, of which something has changed; and the rest."""

    names: Mapping[What, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.names)

    def among(self, known: Mapping[What, frozenset[str]] | None) -> tuple[What, ...]:
        """The parts in which one of these `known` names has changed; None knows all."""
        if known is None:
            return tuple(part for part in PARTS if part in self.names)
        return tuple(part for part in PARTS if not self.names.get(part, frozenset()).isdisjoint(known.get(part, ())))


class Changes:
    """Remembers the last look; the first one finds no change."""

    def __init__(self) -> None:
        self._last: _Pictures | None = None

    def look(self, state: State) -> Changed:
        """What has changed since the last look."""
        last, self._last = self._last, _pictures(state)
        if last is None:
            return Changed()
        found: dict[What, frozenset[str]] = {}
        for part, now in self._last.items():
            before = last[part]
            names = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
            if names:
                found[part] = frozenset(names)
        return Changed(found)

    def forget(self) -> None:
        """Nobody looks on: what changes until somebody does is nothing new to them."""
        self._last = None


def _pictures(state: State) -> _Pictures:
    """As little of each as tells whether its picture in `core.views` is another one."""
    tenants: dict[str, Any] = {}
    for name, tenant in state.policy.tenants.items():
        node, loans, account = state.quotas[tenant.pool].tenants[name], state.loans[tenant.pool], state.accounts[name]
        tenants[name] = (node.use, node.running, account.waiting, loans.lent(name), loans.borrowed(name),
                         node.guaranteed, node.cap)  # fmt: skip
    jobs: dict[str, Any] = {}
    for devices in state.devices.values():
        for flow in devices.line.flows.values():
            jobs[flow.tenant] = (flow.length, flow.account.by_jobs)
    return {
        "tenants": tenants,
        "pools": {name: (q.capacity, q.use, q.unowned, q.scaled) for name, q in state.quotas.items()},
        "models": {
            name: (site.crew.wanted, site.crew.why, len(site.crew.starting), len(site.replicas), site.free_slots,
                   site.crew.broken, site.crew.unplaced, site.line.waiting, site.turns)
            for name, site in state.sites.items()
        },
        "jobs": jobs,
        "config": {"": state.policy.revision},
    }  # fmt: skip
