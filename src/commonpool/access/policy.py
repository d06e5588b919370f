"""Who may do what: callers and permissions put before the policies, and what they decided.

A policy can tell tenants apart by the roles that the caller has there and by their names, and by nothing else. So a
question about all tenants is asked once for every tenant that the caller is bound to or that a policy names, and once
for all the others together; with a thousand tenants it costs as much as with two.
"""

from collections.abc import Collection
from typing import Any, Final

import cedarpy
import msgspec

from commonpool.access.callers import APP, Caller
from commonpool.access.permissions import Permission
from commonpool.access.policy_files import Policies
from commonpool.access.scope import Scope
from commonpool.config.roles import TENANT_ROLES

DECISIONS_MAX: Final = 20_000  # that are remembered, about 10 MB; then all are forgotten

_PLATFORM: Final = {"type": "Platform", "id": "commonpool"}
_CHANGE: Final = {"type": "Action", "id": "change"}
_ANY_OTHER: Final = "*"  # no tenant is called so


class Decision(msgspec.Struct, frozen=True):
    """`policies` are those that decided, by file and line; none where nothing permits it."""

    allowed: bool
    policies: tuple[str, ...] = ()


_Question = tuple[Caller, Permission, str | None]


class Authority:
    """Decides by policies. A decision depends on caller, permission and tenant alone, so it is remembered."""

    def __init__(self, policies: Policies, remember: int = DECISIONS_MAX) -> None:
        self.policies = policies
        self._remember = remember
        self._decisions: dict[_Question, Decision] = {}

    @property
    def remembered(self) -> int:
        """How many decisions are remembered."""
        return len(self._decisions)

    def decide(self, caller: Caller, permission: Permission, tenant: str | None = None) -> Decision:
        """Whether this caller may do that to a tenant, or on the platform where that is None."""
        special = tenant is None or tenant in self._special(caller)
        question = caller, permission, tenant if special else _ANY_OTHER
        decision = self._decisions.get(question)
        if decision is None:
            if len(self._decisions) >= self._remember:
                self._decisions.clear()
            decision = self._decisions[question] = _ask(self.policies.compiled, *question)
        return decision

    def scope(self, caller: Caller, permission: Permission, tenants: Collection[str]) -> Scope:
        """How far the permission reaches. `tenants` are those there are; the caller's own may be others, of before."""
        special = self._special(caller)
        platform = self.decide(caller, permission).allowed
        others = self.decide(caller, permission, _ANY_OTHER).allowed
        allowed = {tenant for tenant in special if self.decide(caller, permission, tenant).allowed}
        if platform and others and allowed == special:
            return Scope(None, platform=True)
        known = _bound(caller).union(tenants)
        reached = known - (special - allowed) if others else known & allowed
        return Scope(frozenset(reached), platform)

    def _special(self, caller: Caller) -> frozenset[str]:
        """The tenants that a policy can tell from the others."""
        return self.policies.named | _bound(caller)


def _bound(caller: Caller) -> frozenset[str]:
    return frozenset(binding.tenant for binding in caller.bindings if binding.tenant is not None)


def _ask(policies: cedarpy.PolicySet, caller: Caller, permission: Permission, tenant: str | None) -> Decision:
    who, action = {"type": "Caller", "id": caller.name}, {"type": "Action", "id": permission.value}
    entities: list[dict[str, Any]] = [
        {"uid": _PLATFORM, "attrs": {}, "parents": []},
        {"uid": who, "attrs": {"kind": caller.kind}, "parents": [_role(b.role, b.tenant) for b in caller.bindings]},
        {"uid": action, "attrs": {}, "parents": [_CHANGE] if permission.changes else []},
    ]
    resource = _PLATFORM
    if tenant is not None:
        resource = {"type": "Tenant", "id": tenant}
        roles = {f"{role.replace('-', '_')}s": {"__entity": _role(role, tenant)} for role in (*TENANT_ROLES, APP)}
        entities.append({"uid": resource, "attrs": roles, "parents": [_PLATFORM]})
    request = {"principal": who, "action": action, "resource": resource}
    found = cedarpy.is_authorized(request, policies, msgspec.json.encode(entities).decode())
    # A policy that fails while it is asked, by an overflow say, might have been one that forbids.
    return Decision(found.allowed and not found.diagnostics.errors, tuple(sorted(found.diagnostics.reasons)))


def _role(role: str, tenant: str | None) -> dict[str, str]:
    if tenant is None:
        return {"type": "Role", "id": role}
    return {"type": "TenantRole", "id": f"{tenant}/{role}"}
