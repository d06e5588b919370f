"""Metering: what is noted while things run, so that what was used is known whatever ends the process.

A `Standing` says what a pool has and whose it is, a `Span` what a replica or job holds and does. Each is noted when it
is over, at every full hour, and once a minute while it lasts. At a full hour each attempt that runs is noted as well
(`records.noted`), up to that hour exactly. The hours are those of the books (`Policy.hour_offset_ns`).

What a draining replica still serves is its requests'; only the rest of it is draining.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from commonpool.core.ledger import PLATFORM, Phase, Span, Standing, hour_of, tenant_account
from commonpool.core.machine import Machine
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, UsageRecord
from commonpool.core.quota import Quota
from commonpool.core.replicas import owner_of
from commonpool.core.sites import Serving

NOTE_NS: Final = 60 * NS_PER_S

Note = UsageRecord | Standing | Span
Key = tuple[str, Phase]
_Held = tuple[str, str, int]  # pool, model, milli_gpu
N = TypeVar("N", Standing, Span)


def pieces(start_ns: int, end_ns: int, offset_ns: int) -> Iterator[tuple[int, int]]:
    """A length of time, cut at the full hours; none where it is empty."""
    while start_ns < end_ns:
        until = min(end_ns, hour_of(start_ns, offset_ns) + NS_PER_HOUR)
        yield start_ns, until
        start_ns = until


def noted(lasting: N, until: int, offset_ns: int, notes: list[Note]) -> N:
    """Note what lasts until then, an hour at a time; returns what goes on."""
    for start_ns, end_ns in pieces(lasting.start_ns, until, offset_ns):
        lasting = msgspec.structs.replace(lasting, start_ns=start_ns, end_ns=end_ns)
        notes.append(lasting)
    if hour_of(lasting.end_ns, offset_ns) > lasting.start_ns:  # it goes on as another one
        lasting = msgspec.structs.replace(lasting, start_ns=lasting.end_ns)
    return lasting


class Metering:
    """What was noted last of a machine, and what is to be noted next. Times never go backwards."""

    def __init__(self, machine: Machine) -> None:
        self.noted_until = 0  # the full hour up to which everything is noted
        self.draining = False  # whether what ends changes what a replica drains
        self._machine = machine
        self._standings: dict[str, Standing] = {}  # those that last, by pool; not noted behind their ends
        self._spans: dict[Key, Span] = {}
        self._changes: dict[str, int] = {}
        self._noted = 0  # when all that lasts was noted last

    def look(self, now: int) -> list[Note]:
        """What is to be noted after something that may have changed who has or holds what."""
        notes: list[Note] = []
        hour = hour_of(now, self._offset)
        if hour > self.noted_until:
            notes += self._machine.all_noted(hour)
            self._note_all(hour, notes)
            self.noted_until = hour
        self._look_at_pools(now, notes)
        self._look_at_holders(now, notes)
        return notes

    def tick(self, now: int) -> list[Note]:
        """As `look`, about once a second."""
        notes = self.look(now)
        if now - self._noted >= NOTE_NS:
            self._note_all(now, notes)
            self._noted = now
        return notes

    def end(self, now: int) -> list[Note]:
        """The last notes: nothing is noted from now on."""
        notes = self.look(now)
        self._note_all(now, notes)
        self._standings.clear()
        self._spans.clear()
        return notes

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _offset(self) -> int:
        return self._machine.state.policy.hour_offset_ns

    def _note_all(self, until: int, notes: list[Note]) -> None:
        """Note all that lasts; what has come to a full hour goes on as another one."""
        for pool, standing in self._standings.items():
            self._standings[pool] = noted(standing, until, self._offset, notes)
        for key, span in self._spans.items():
            self._spans[key] = noted(span, until, self._offset, notes)

    def _look_at_pools(self, now: int, notes: list[Note]) -> None:
        quotas = self._machine.state.quotas
        for pool in [pool for pool in self._standings if pool not in quotas]:
            noted(self._standings.pop(pool), now, self._offset, notes)
            del self._changes[pool]
        for pool, quota in quotas.items():
            if self._changes.get(pool) == quota.changes:
                continue
            self._changes[pool] = quota.changes
            known = self._standings.get(pool)
            guaranteed = _guaranteed(quota)
            if known is not None:
                if known.milli_gpu == quota.capacity and known.guaranteed == guaranteed:
                    continue
                noted(known, now, self._offset, notes)
            self._standings[pool] = Standing(pool, now, now, quota.capacity, guaranteed)

    def _look_at_holders(self, now: int, notes: list[Note]) -> None:
        held = self._held()
        self.draining = any(phase is Phase.DRAINING for _, phase in held)
        for key, span in list(self._spans.items()):
            if held.get(key) != (span.pool, span.model, span.milli_gpu):
                noted(self._spans.pop(key), now, self._offset, notes)
        for key, (pool, model, milli_gpu) in held.items():
            if key not in self._spans:
                name, phase = key
                account = self._account(name, pool, model)
                self._spans[key] = Span(name, phase, pool, model, account, milli_gpu, now, now)

    def _held(self) -> dict[Key, _Held]:
        """Who holds how much of which pool now, and for what."""
        held: dict[Key, _Held] = {}
        for site in self._machine.state.sites.values():
            self._replicas(site, held)
        for pool, devices in self._machine.state.devices.items():
            for job_id, entry in devices.running.items():
                held[job_id, Phase.SERVING] = (pool, "", entry.ask)
        return held

    def _replicas(self, site: Serving, held: dict[Key, _Held]) -> None:
        for starting in site.crew.starting.values():
            phase = Phase.DRAINING if starting.stopping else Phase.LOADING
            held[starting.replica.id, phase] = (starting.pool, site.name, starting.replica.milli_gpu)
        for running in site.replicas.values():
            milli_gpu = running.replica.milli_gpu
            if running.lost:
                continue
            serves = min(running.asked, milli_gpu) if running.draining else milli_gpu
            if serves:
                held[running.id, Phase.SERVING] = (running.pool, site.name, serves)
            if serves < milli_gpu:
                held[running.id, Phase.DRAINING] = (running.pool, site.name, milli_gpu - serves)

    def _account(self, name: str, pool: str, model: str) -> str:
        """Who answers for what somebody holds."""
        state = self._machine.state
        if not model:
            return tenant_account(state.devices[pool].running[name].flow.tenant)
        deployment = state.policy.deployments.get(model)
        owner = "" if deployment is None else owner_of(state, deployment)
        return tenant_account(owner) if owner else PLATFORM


def _guaranteed(quota: Quota) -> dict[str, int]:
    """What of a pool is whose, by account; the rest is the platform's."""
    found = {tenant_account(name): node.guaranteed for name, node in quota.tenants.items() if node.guaranteed}
    for name, node in quota.groups.items():
        if node.own:
            found[f"group:{name}"] = node.own
    return found
