"""Who calls the control plane: a caller and the roles it is bound to. What a role may do is said by the policies."""

from typing import Literal

import msgspec

from commonpool.config.roles import PLATFORM_ADMIN, PLATFORM_ROLES, TENANT_ROLES

Kind = Literal["nobody", "local", "key", "person", "service"]

APP = "app"
"""What a data key has in its tenant: what an application may ask for itself. Nobody is given it otherwise."""


class RoleError(ValueError):
    """There is no such role, or not there: on the platform or in a tenant."""


class Binding(msgspec.Struct, frozen=True, order=True):
    """A role in a tenant, or on the platform where `tenant` is None. Raises `RoleError` for one that does not exist."""

    role: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        roles: tuple[str, ...]
        if self.tenant is None:
            where, roles = "on the platform", PLATFORM_ROLES
        elif self.tenant:
            where, roles = f"in tenant {self.tenant!r}", (*TENANT_ROLES, APP)
        else:
            msg = f"role {self.role!r} names a tenant of no name; leave the tenant out for a role on the platform"
            raise RoleError(msg)
        if self.role not in roles:
            msg = f"there is no role {self.role!r} {where}; there is {', '.join(r for r in roles if r != APP)}"
            raise RoleError(msg)


class Caller(msgspec.Struct, frozen=True):
    """Somebody who asks for something. Without bindings it may do next to nothing.

    `name` is what the audit log says: `local`, `key:ID`, `account:NAME` or `oidc:SUBJECT`. A data key is one of an
    `app`, whose jobs are of this `tier` where they name none.
    """

    name: str
    kind: Kind
    bindings: tuple[Binding, ...]
    app: str = ""
    tier: str = ""

    @property
    def roles(self) -> str:
        """For people: `viewer, developer in research`."""
        said = [b.role if b.tenant is None else f"{b.role} in {b.tenant}" for b in self.bindings]
        return ", ".join(said) or "no role"

    @property
    def tenant(self) -> str:
        """The only tenant that it belongs to; "" where it is of the platform, or of several."""
        tenants = {binding.tenant for binding in self.bindings}
        return next(iter(tenants)) or "" if len(tenants) == 1 else ""


NOBODY = Caller("nobody", "nobody", ())
"""Somebody without a credential that is good for anything."""


LOCAL = Caller("local", "local", (Binding(PLATFORM_ADMIN),))
"""Somebody on the same machine, without a credential."""


def by_admin_key(key_id: str, role: str = "", tenant: str = "") -> Caller:
    """Who an admin key stands for: without a role it is a platform-admin. Raises `RoleError`."""
    return Caller(f"key:{key_id}", "key", (Binding(role or PLATFORM_ADMIN, tenant or None),))


def by_data_key(key_id: str, tenant: str, app: str = "", tier: str = "") -> Caller:
    """Who a data key stands for: an application of its tenant. Raises `RoleError` where it names no tenant."""
    return Caller(f"key:{key_id}", "key", (Binding(APP, tenant),), app, tier)
