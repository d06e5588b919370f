"""Releases and demand in memory: the part of `store.memory` that keeps them."""

from collections.abc import Iterable, Sequence

import msgspec

from commonpool.core.underuse import Demand
from commonpool.store.releases import Release


class MemoryReleases:
    """A `releases.ReleaseStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._releases: list[Release] = []
        self._demand: dict[str, Demand] = {}

    def add_release(self, release: Release) -> Release:
        """See `ReleaseStore.add_release`."""
        kept = msgspec.structs.replace(release, number=len(self._releases) + 1)
        self._releases.append(kept)
        return kept

    def undo_releases(self, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
        """See `ReleaseStore.undo_releases`."""
        ended = [
            msgspec.structs.replace(release, undone_ns=at_ns, undone_by=by)
            for release in self._releases
            if release.tenant == tenant and release.undone_ns is None
        ]
        for release in ended:
            self._releases[release.number - 1] = release
        return tuple(ended)

    def releases(self, limit: int = 1000, tenants: Sequence[str] | None = None) -> tuple[Release, ...]:
        """See `ReleaseStore.releases`."""
        return tuple(each for each in self._releases[::-1] if tenants is None or each.tenant in tenants)[:limit]

    def released(self) -> dict[str, int]:
        """See `ReleaseStore.released`."""
        found: dict[str, int] = {}
        for release in self._releases:
            if release.undone_ns is None:
                found[release.tenant] = found.get(release.tenant, 0) + release.milli_gpu
        return found

    def save_demand(self, demands: Iterable[Demand]) -> None:
        """See `ReleaseStore.save_demand`."""
        self._demand = {demand.tenant: demand for demand in demands}

    def demand(self) -> tuple[Demand, ...]:
        """See `ReleaseStore.demand`."""
        return tuple(demand for _, demand in sorted(self._demand.items()))
