"""Models: how many replicas each should have, where they go, and where its requests go."""

from collections.abc import Iterator
from typing import Final

from commonpool.core import story
from commonpool.core.breaker import Circuit
from commonpool.core.english import english
from commonpool.core.model import NS_PER_S, Replica
from commonpool.core.said import Said, say
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
            said = say(
                "model.wanted",
                model=self._name,
                replicas=_counted(wanted),
                before=before or say("model.none_before"),
                why=story.why(self._crew.why),
            )
            yield self._decision("scaling", said, self._name)

    def _replicas(self) -> Iterator[Decision]:
        site, seen, name = self._site, self._seen, self._name
        starting = {each.replica.id: each.replica for each in self._crew.starting.values()}
        there = starting | {running.id: running.replica for running in site.replicas.values()}
        for replica in there.values():
            if replica.id not in seen.replicas:
                what = "model.starts" if replica.id in starting else "model.serves"
                said = say(what, replica=replica.id, model=name, milli_gpu=replica.milli_gpu)
                yield self._decision("placement", said, replica.id, replica.milli_gpu, replica.node)
        draining = {running.id for running in site.replicas.values() if running.draining and not running.lost}
        for replica_id in sorted(draining - seen.draining):
            said = say("model.drains", replica=replica_id, model=name, why=story.why(self._crew.why))
            yield self._decision("scaling", said, replica_id)
        for replica in seen.replicas.values():
            if replica.id not in there:
                yield self._gone(replica)
        seen.replicas, seen.draining = there, draining

    def _gone(self, replica: Replica) -> Decision:
        said = say("model.ended", replica=replica.id, model=self._name, milli_gpu=replica.milli_gpu)
        error = _short(self._crew.error)
        if error and replica.id not in self._seen.draining:
            said = say("model.lost", replica=replica.id, model=self._name, detail=error)
        return self._decision("scaling", said, replica.id, replica.milli_gpu, replica.node)

    def _troubles(self) -> Iterator[Decision]:
        crew, seen, name = self._crew, self._seen, self._name
        if bool(crew.unplaced) is not seen.unplaced:
            seen.unplaced = bool(crew.unplaced)
            if crew.unplaced:
                yield self._decision("placement", say("model.unplaced", model=name, detail=crew.unplaced), name)
        if crew.broken is not seen.broken:
            seen.broken = crew.broken
            said = say("model.startable", model=name)
            if crew.broken:
                said = say("model.broken", model=name, detail=_short(crew.error))
            yield self._decision("scaling", said, name)

    def _circuits(self) -> Iterator[Decision]:
        replicas = self._site.replicas
        is_open = {running.id for running in replicas.values() if running.breaker.circuit is not Circuit.CLOSED}
        for replica_id in sorted(is_open - self._seen.open):
            said = say("model.circuit_opens", replica=replica_id, model=self._name)
            yield self._decision("routing", said, replica_id)
        for replica_id in sorted((self._seen.open - is_open) & replicas.keys()):
            said = say("model.circuit_closes", replica=replica_id, model=self._name)
            yield self._decision("routing", said, replica_id)
        self._seen.open = is_open

    def _fallback(self) -> Iterator[Decision]:
        """Whose requests its fallback takes: from the first until there was none for a while."""
        seen, name = self._seen, self._name
        deployment = self._state.policy.deployments.get(name)
        other: Said | str = say("model.its_fallback")
        if deployment is not None and deployment.fallback is not None:
            other = deployment.fallback
        for tenant, count in self._crew.instead.items():
            before = seen.taken.get(tenant, 0)
            known = seen.fallbacks.get(tenant)
            if count != before:
                seen.taken[tenant] = count
                seen.fallbacks[tenant] = (before if known is None else known[0], self._now)
                if known is None:
                    said = say("model.fallback", fallback=other, tenant=tenant, model=name)
                    yield self._decision("routing", said, name, tenants=(tenant,))
            elif known is not None and known[1] + FALLBACK_OVER_NS <= self._now:
                del seen.fallbacks[tenant]
                said = say("model.fallback_over", model=name, tenant=tenant, fallback=other, count=count - known[0])
                yield self._decision("routing", said, name, tenants=(tenant,))

    def _decision(
        self, kind: Kind, said: Said, subject: str, milli_gpu: int = 0, node: str = "", tenants: tuple[str, ...] = ()
    ) -> Decision:
        pool = self._site.quota.pool
        return Decision(self._now, kind, english(said), tenants, self._name, pool, subject, milli_gpu, node, said=said)


def _counted(replicas: int) -> Said:
    if replicas > 1:
        return say("model.replicas", count=replicas)
    return say("model.one_replica" if replicas else "model.no_replica")


def _short(error: str) -> str:
    """A sentence on one line; the last lines of a log, which may follow it, are elsewhere."""
    return " ".join(error.partition(" Its last lines:")[0].split())
