"""Whose things an endpoint is about, so that it can be decided before its handler is called.

What is foreign is answered by the same words as what does not exist: `missing` has them, for both.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from commonpool.access.callers import Caller
from commonpool.access.people import NOWHERE, Visit
from commonpool.access.scope import Scope
from commonpool.api.operations import BadRequestError, NotFoundError, OperationError, Operations
from commonpool.config.problems import listed


class Who(msgspec.Struct, frozen=True):
    """Who asks, and how far the permission reaches that the endpoint asks for. `name` is how it is kept who did it.

    `visit` is how they come, for what is about coming and going.
    """

    caller: Caller
    scope: Scope
    visit: Visit = NOWHERE

    @property
    def name(self) -> str:
        return self.caller.name


class Asked(msgspec.Struct, frozen=True):
    """One call of an endpoint: its parameters, its body (None where it takes none), and who calls."""

    params: Any
    body: Any
    who: Who


class Subject(msgspec.Struct, frozen=True):
    """How the tenant is found that a call is about.

    `find` gives its name, "" for what is the platform's, None where there is no such thing. It is None where a call is
    about several tenants: then the handler keeps to the caller's scope.
    """

    find: Callable[[Operations, Asked], Awaitable[str | None]] | None
    missing: Callable[[Operations, Asked], OperationError] | None = None


async def _platform(_: Operations, __: Asked) -> str:
    return ""


async def _in_path(operations: Operations, asked: Asked) -> str | None:
    return _known(operations, asked.params.tenant)


async def _in_body(operations: Operations, asked: Asked) -> str | None:
    return _known(operations, asked.body.tenant)


def _known(operations: Operations, tenant: str) -> str | None:
    return tenant if tenant in operations.config().policy.tenants else None


def _no_tenant_of_path(operations: Operations, asked: Asked) -> OperationError:
    return NotFoundError(_no_tenant(operations, asked, asked.params.tenant), param="tenant")


def no_tenant(operations: Operations, asked: Asked) -> OperationError:
    """What is answered where the body names a tenant that is foreign, or that there is not."""
    return BadRequestError(_no_tenant(operations, asked, asked.body.tenant), param="tenant")


def _no_tenant(operations: Operations, asked: Asked, tenant: str) -> str:
    return f"there is no tenant {tenant!r}; there is {listed(asked.who.scope.of(operations.config().policy.tenants))}"


PLATFORM: Final = Subject(_platform)
"""The product as a whole."""

ACROSS: Final = Subject(None)
"""Several tenants: the handler takes the caller's scope into what it asks."""

TENANT_OF_PATH: Final = Subject(_in_path, _no_tenant_of_path)
TENANT_OF_BODY: Final = Subject(_in_body, no_tenant)
