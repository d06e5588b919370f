"""Models: how many replicas each should have, where they go, and where its requests go."""

from collections.abc import Iterator
from typing import Final

from commonpool.config.quantities import format_gpu
from commonpool.core import explain
from commonpool.core.breaker import Circuit
from commonpool.core.model import NS_PER_S, Replica
from commonpool.core.sites import Serving
from commonpool.core.state import State
from commonpool.observe.decisions import Decision, Kind

FALLBACK_OVER_NS: Final = 60 * NS_PER_S  # so long without a request that its fallback takes


class _Model:
    """What was seen of a model."""

    def __init__(self) -> None:
        self.wanted = 0
        self.broken = False
        self.unplaced = False
        self.replicas: dict[str, Replica] = {}
        self.draining: set[str] = set()
        self.open: set[str] = set()  # replicas whose circuit is
        self.taken: dict[str, int] = {}  # by its fallback, by tenant
        self.fallbacks: dict[str, tuple[int, int]] = {}  # that are told: how many before, and when there was one last


class Models:
    """All models."""

    def __init__(self) -> None:
        self._seen: dict[str, _Model] = {}

    def look(self, state: State, now: int) -> Iterator[Decision]:
        """See `Observer.look`."""
        for name in self._seen.keys() - state.sites.keys():
            del self._seen[name]
        for name, site in state.sites.items():
            yield from _Look(state, site, self._seen.setdefault(name, _Model()), now).all()


class _Look:
    """One look at one model."""

    def __init__(self, state: State, site: Serving, seen: _Model, now: int) -> None:
        self._state = state
        self._site = site
        self._crew = site.crew
        self._seen = seen
        self._now = now
        self._name = site.name

    def all(self) -> Iterator[Decision]:
        yield from self._wanted()
        yield from self._replicas()
        yield from self._troubles()
        yield from self._circuits()
        yield from self._fallback()

    def _wanted(self) -> Iterator[Decision]:
        wanted, before = self._crew.wanted, self._seen.wanted
        if wanted != before:
            self._seen.wanted = wanted
            count = "no replica" if not wanted else "1 replica" if wanted == 1 else f"{wanted} replicas"
            said = f"{self._name} should have {count} instead of {before or 'none'}: {explain.scaling(self._crew.why)}"
            yield self._decision("scaling", said, self._name)

    def _replicas(self) -> Iterator[Decision]:
        site, seen, name = self._site, self._seen, self._name
        starting = {each.replica.id: each.replica for each in self._crew.starting.values()}
        there = starting | {running.id: running.replica for running in site.replicas.values()}
        for replica in there.values():
            if replica.id not in seen.replicas:
                on = f"on {format_gpu(replica.milli_gpu)}"
                what = "starts" if replica.id in starting else "serves"
                said = f"replica {replica.id} of {name} {what} {on}"
                yield self._decision("placement", said, replica.id, replica.milli_gpu, replica.node)
        draining = {running.id for running in site.replicas.values() if running.draining and not running.lost}
        for replica_id in sorted(draining - seen.draining):
            said = (
                f"replica {replica_id} of {name} gets nothing new and ends when what runs on it has ended: "
                f"{explain.scaling(self._crew.why)}"
            )
            yield self._decision("scaling", said, replica_id)
        for replica in seen.replicas.values():
            if replica.id not in there:
                yield self._gone(replica)
        seen.replicas, seen.draining = there, draining

    def _gone(self, replica: Replica) -> Decision:
        said = f"replica {replica.id} of {self._name} has ended, and its {format_gpu(replica.milli_gpu)} are free"
        error = _short(self._crew.error)
        if error and replica.id not in self._seen.draining:
            said = f"replica {replica.id} of {self._name} is lost, so its requests go elsewhere: {error}"
        return self._decision("scaling", said, replica.id, replica.milli_gpu, replica.node)

    def _troubles(self) -> Iterator[Decision]:
        crew, seen, name = self._crew, self._seen, self._name
        if bool(crew.unplaced) is not seen.unplaced:
            seen.unplaced = bool(crew.unplaced)
            if crew.unplaced:
                yield self._decision("placement", f"no place for one more replica of {name}: {crew.unplaced}", name)
        if crew.broken is not seen.broken:
            seen.broken = crew.broken
            said = f"replicas of {name} can be started again"
            if crew.broken:
                said = f"no replica of {name} could be started several times in a row, so that is tried seldom now"
                said += f": {_short(crew.error)}"
            yield self._decision("scaling", said, name)

    def _circuits(self) -> Iterator[Decision]:
        replicas = self._site.replicas
        is_open = {running.id for running in replicas.values() if running.breaker.circuit is not Circuit.CLOSED}
        for replica_id in sorted(is_open - self._seen.open):
            said = f"replica {replica_id} of {self._name} gets nothing new for now: too many requests failed on it"
            yield self._decision("routing", said, replica_id)
        for replica_id in sorted((self._seen.open - is_open) & replicas.keys()):
            said = f"replica {replica_id} of {self._name} gets requests again: one that was tried has succeeded"
            yield self._decision("routing", said, replica_id)
        self._seen.open = is_open

    def _fallback(self) -> Iterator[Decision]:
        """Whose requests its fallback takes: from the first until there was none for a while."""
        seen, name = self._seen, self._name
        deployment = self._state.policy.deployments.get(name)
        other = "its fallback" if deployment is None or deployment.fallback is None else deployment.fallback
        for tenant, count in self._crew.instead.items():
            before = seen.taken.get(tenant, 0)
            known = seen.fallbacks.get(tenant)
            if count != before:
                seen.taken[tenant] = count
                seen.fallbacks[tenant] = (before if known is None else known[0], self._now)
                if known is None:
                    said = f"{other} answers requests of {tenant} for {name}, which cannot serve them in time"
                    yield self._decision("routing", said, name, tenants=(tenant,))
            elif known is not None and known[1] + FALLBACK_OVER_NS <= self._now:
                del seen.fallbacks[tenant]
                said = f"{name} serves {tenant} by itself again: {other} answered {count - known[0]:,} of its requests"
                yield self._decision("routing", said, name, tenants=(tenant,))

    def _decision(
        self, kind: Kind, said: str, subject: str, milli_gpu: int = 0, node: str = "", tenants: tuple[str, ...] = ()
    ) -> Decision:
        pool = self._site.quota.pool
        return Decision(self._now, kind, said, tenants, self._name, pool, subject, milli_gpu, node)


def _short(error: str) -> str:
    """A sentence on one line; the last lines of a log, which may follow it, are elsewhere."""
    return " ".join(error.partition(" Its last lines:")[0].split())
