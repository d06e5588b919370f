"""What tenants may have: by a configuration, a grant or a release."""

from collections.abc import Iterator
from typing import Final

from commonpool.core.english import english
from commonpool.core.model import Policy, Tenant
from commonpool.core.said import Said, say
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
                said = say("quota.scaled", pool=pool, milli_gpu=quota.capacity)
                yield Decision(
                    now, "quota", english(said), pool=pool, subject=pool, milli_gpu=quota.capacity, said=said
                )
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
                said = say("quota.granted", tenant=name, milli_gpu=cap, length_ns=max(0, until - now))
                yield _quota(tenant, said, cap, now)
            else:
                said = say("quota.grant_over", tenant=name, milli_gpu=tenant.elastic_cap)
                yield _quota(tenant, said, tenant.elastic_cap, now)

    def _has_released(self, state: State, now: int) -> Iterator[Decision]:
        for name in sorted(state.released.keys() | self._released.keys()):
            tenant, amount = state.policy.tenants.get(name), state.released.get(name, 0)
            if tenant is None or amount == self._released.get(name, 0):
                continue
            said = say("quota.taken_back", tenant=name)
            if amount:
                said = say("quota.released", tenant=name, milli_gpu=amount)
            yield _quota(tenant, said, amount, now)


def _configured(before: Policy, policy: Policy, now: int) -> Iterator[Decision]:
    said = say("quota.configured", revision=str(policy.revision))
    yield Decision(now, "quota", english(said), subject=f"revision {policy.revision}", said=said)
    for name, tenant in policy.tenants.items():
        known = before.tenants.get(name)
        if known is None:
            said = say("quota.new_tenant", tenant=name, pool=tenant.pool, milli_gpu=tenant.guaranteed)
            yield _quota(tenant, said, tenant.guaranteed, now)
            continue
        changes = tuple(
            say(
                "quota.change",
                field=field,
                new_milli_gpu=getattr(tenant, field),
                old_milli_gpu=getattr(known, field),
            )
            for field in _FIELDS
            if getattr(tenant, field) != getattr(known, field)
        )
        if changes:
            yield _quota(tenant, say("quota.changed", tenant=name, changes=changes), tenant.guaranteed, now)
    for name, tenant in before.tenants.items():
        if name not in policy.tenants:
            yield _quota(tenant, say("quota.gone", tenant=name), 0, now)


def _quota(tenant: Tenant, said: Said, milli_gpu: int, now: int) -> Decision:
    return Decision(
        now,
        "quota",
        english(said),
        (tenant.name,),
        pool=tenant.pool,
        subject=tenant.name,
        milli_gpu=milli_gpu,
        said=said,
    )
