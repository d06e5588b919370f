"""What is kept of guarantees that are not used: releases, who made and undid them; and the demand of each tenant."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from commonpool.core.underuse import Demand


class Release(msgspec.Struct, frozen=True):
    """So much of a tenant's guarantee was released. `released_by` and `undone_by` are callers.

    They are called as in the audit log, such as "local" or "key:ID". `number` counts all releases, from 1; it is 0
    before one is kept. `undone_ns` is None while it holds.
    """

    tenant: str
    milli_gpu: int
    released_ns: int
    released_by: str
    reason: str = ""
    number: int = 0
    undone_ns: int | None = None
    undone_by: str | None = None


class ReleaseStore(Protocol):
    """The part of a store that keeps releases and demand. What it has taken survives a power cut."""

    def add_release(self, release: Release) -> Release:
        """Keeps a new release and returns it with its number."""

    def undo_releases(self, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
        """Ends all releases of a tenant that hold, and returns them, the oldest first."""

    def releases(self, limit: int = 1000, tenants: Sequence[str] | None = None) -> tuple[Release, ...]:
        """The releases of these tenants (None: of all), undone ones too, the newest first."""

    def released(self) -> dict[str, int]:
        """How many milli_gpu each tenant has released, by the releases that hold."""

    def save_demand(self, demands: Iterable[Demand]) -> None:
        """Keeps these in place of all that were kept before."""

    def demand(self) -> tuple[Demand, ...]:
        """What was kept last, by tenant."""
