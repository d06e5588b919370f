"""What tenants may have: by a configuration, a grant or a release."""

from collections.abc import Iterator
from typing import Final

from commonpool.config.quantities import format_gpu
from commonpool.core.explain import duration
from commonpool.core.model import Policy, Tenant
from commonpool.core.state import State
from commonpool.observe.decisions import Decision

_FIELDS: Final = ("guaranteed", "reserved", "elastic_cap", "hard_cap", "headroom")


class Quotas:
    """The quotas of all tenants."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._grants: dict[str, tuple[int, int]] = {}
        self._released: dict[str, int] = {}
        self._scaled: dict[str, bool] = {}

    def look(self, state: State, now: int) -> Iterator[Decision]:
        """See `Observer.look`. Quotas of before the first look were decided before."""
        policy = state.policy
        if policy is not self._policy:
            if self._policy is not None:
                yield from _configured(self._policy, policy, now)
            self._policy = policy
        for pool, quota in state.quotas.items():
            if quota.scaled and not self._scaled.get(pool):
                said = f"the guarantees in {pool} exceed its {format_gpu(quota.capacity)}, so each is cut pro rata"
                yield Decision(now, "quota", said, pool=pool, subject=pool, milli_gpu=quota.capacity)
            self._scaled[pool] = quota.scaled
        if state.grants != self._grants:
            yield from self._granted(state, now)
            self._grants = dict(state.grants)
        if state.released != self._released:
            yield from self._has_released(state, now)
            self._released = dict(state.released)

    def _granted(self, state: State, now: int) -> Iterator[Decision]:
        for name in sorted(state.grants.keys() | self._grants.keys()):
            tenant, grant = state.policy.tenants.get(name), state.grants.get(name)
            if tenant is None or grant == self._grants.get(name):
                continue
            if grant is not None:
                cap, until = grant
                said = f"{name} may use {format_gpu(cap)} for {duration(max(0, until - now))}, by a grant"
                yield _quota(tenant, said, cap, now)
            else:
                said = f"the grant of {name} is over: it may use {format_gpu(tenant.elastic_cap)} again"
                yield _quota(tenant, said, tenant.elastic_cap, now)

    def _has_released(self, state: State, now: int) -> Iterator[Decision]:
        for name in sorted(state.released.keys() | self._released.keys()):
            tenant, amount = state.policy.tenants.get(name), state.released.get(name, 0)
            if tenant is None or amount == self._released.get(name, 0):
                continue
            if amount:
                said = f"{name} has released {format_gpu(amount)} of its guarantee, which others may use"
            else:
                said = f"{name} has its whole guarantee again: what it had released is taken back"
            yield _quota(tenant, said, amount, now)


def _configured(before: Policy, policy: Policy, now: int) -> Iterator[Decision]:
    said = f"revision {policy.revision} of the configuration is in force"
    yield Decision(now, "quota", said, subject=f"revision {policy.revision}")
    for name, tenant in policy.tenants.items():
        known = before.tenants.get(name)
        if known is None:
            said = f"{name} is a tenant of {tenant.pool} now, with {format_gpu(tenant.guaranteed)} guaranteed"
            yield _quota(tenant, said, tenant.guaranteed, now)
            continue
        changed = [
            f"{field} {format_gpu(getattr(tenant, field))} instead of {format_gpu(getattr(known, field))}"
            for field in _FIELDS
            if getattr(tenant, field) != getattr(known, field)
        ]
        if changed:
            yield _quota(tenant, f"{name} has another quota: {', '.join(changed)}", tenant.guaranteed, now)
    for name, tenant in before.tenants.items():
        if name not in policy.tenants:
            yield _quota(tenant, f"{name} is no tenant any more: nothing new of it is taken", 0, now)


def _quota(tenant: Tenant, said: str, milli_gpu: int, now: int) -> Decision:
    return Decision(now, "quota", said, (tenant.name,), pool=tenant.pool, subject=tenant.name, milli_gpu=milli_gpu)
