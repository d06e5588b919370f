"""Whose things a caller may know of, as a value that questions take along."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")


class Scope(msgspec.Struct, frozen=True):
    """The tenants that one permission reaches. None is all, those that are gone too; an empty set is none at all.

    `platform`: it also reaches what belongs to no tenant, which is called "" where tenants are named.
    """

    tenants: frozenset[str] | None
    platform: bool = False

    def __contains__(self, tenant: str) -> bool:
        if not tenant:
            return self.platform
        return self.tenants is None or tenant in self.tenants

    def __bool__(self) -> bool:
        return self.platform or self.tenants is None or bool(self.tenants)

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.platform and self.tenants is None

    @property
    def single(self) -> str:
        """The name of the only tenant that it reaches; "" where there are others, or none."""
        return next(iter(self.tenants)) if self.tenants is not None and len(self.tenants) == 1 else ""

    def of(self, things: Mapping[str, T]) -> dict[str, T]:
        """Those of these things, by tenant, that it reaches."""
        return {tenant: thing for tenant, thing in things.items() if tenant in self}

    def names(self, wanted: Sequence[str] = ()) -> tuple[str, ...] | None:
        """The tenants that a question to the store is about: those `wanted`, or all, as far as it reaches; sorted.

        None is no filter; () keeps nothing.
        """
        if self.tenants is None:
            return tuple(wanted) or None
        return tuple(sorted(self.tenants.intersection(wanted) if wanted else self.tenants))

    def filters(self, filters: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """These filters of a question to the store, with that of `tenant` as far as it reaches."""
        names = self.names(filters.get("tenant", ()))
        return dict(filters) if names is None else {**filters, "tenant": names}


EVERYTHING: Final = Scope(None, platform=True)
NOTHING: Final = Scope(frozenset())
