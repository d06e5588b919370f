"""Giving out what is free: who of those who wait runs next, what is taken for it, and what comes back when it ends.

After every event a pool is dispatched until nobody who waits may run: no slot stays idle while someone is allowed to
use it, except what is kept for a tenant under its guarantee that waits for more than is free, and within 20 % of the
surplus for what is large or overdue (line, sites).
"""

from collections.abc import Sequence
from typing import cast

from commonpool.core import replicas
from commonpool.core.devices import Devices
from commonpool.core.effects import Effect
from commonpool.core.entries import Entry, Spot, holds
from commonpool.core.queueing import Flow
from commonpool.core.sites import Serving, Site
from commonpool.core.state import State


class Turns:
    """Whose turn it is, at every site of a state."""

    __slots__ = ("_filled", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self._filled = False  # a limit of an app or a key, by what was started

    def wait(self, entry: Entry, now: int, effects: list[Effect]) -> None:
        """It waits, perhaps for no time at all."""
        site = cast("Site", entry.flow.room)
        self.join(entry, now)
        if site.spare() or site.quota.claimed:
            self.dispatch(site.quota.pool, now, effects)

    def join(self, entry: Entry, now: int) -> None:
        """It waits until its pool is dispatched."""
        flow = entry.flow
        self.enqueue(entry)
        self.observe(flow, 0, now)
        if flow.length == 1:
            cast("Site", flow.room).explain(flow, now)

    def observe(self, flow: Flow, more: int, now: int) -> None:
        """What its tenant wants now: what runs, what waits, and `more`."""
        flow.account.forecast.observe(flow.node.use + flow.account.asked + more, now)

    def enqueue(self, entry: Entry) -> None:
        flow = entry.flow
        flow.push(entry)
        flow.parked = False
        line = cast("Site", flow.room).line
        line.waiting += 1
        if entry.priority < 0:
            line.behind += 1
        line.place(flow)

    def unqueue(self, entry: Entry) -> None:
        flow = entry.flow
        flow.remove(entry)
        line = cast("Site", flow.room).line
        line.waiting -= 1
        if entry.priority < 0:
            line.behind -= 1

    def dispatch(self, pool: str, now: int, effects: list[Effect]) -> None:
        """Give out what is free in a pool, until nobody who waits may run.

        1. Tenants under their guarantee, at every site. 2. The surplus, unless one of the first waits for room in the
        pool: then what frees next is earmarked for it, and nothing more is lent. Requests come before jobs, which are
        long, except for an overdue job. Once more where something is kept and a limit of an app or a key was filled
        meanwhile: whoever it is kept for may not run any more.
        """
        quota, devices, sites = self.state.quotas[pool], self.state.devices[pool], self.state.sites_of[pool]
        self._filled = True
        while self._filled:
            self._filled = False
            self._give_out(pool, sites, now, effects)
            if not (quota.claimed or devices.claimed or any(site.held_for is not None for site in sites)):
                return

    def _give_out(self, pool: str, sites: Sequence[Site], now: int, effects: list[Effect]) -> None:
        quota = self.state.quotas[pool]
        devices = self.state.devices[pool]
        quota.claimed = devices.claimed = ""
        devices.borrowing = False
        for site in sites:
            site.held_for = None
            if site.line.waiting:
                self._serve(site, now, effects, surplus=False)
        devices.borrowing = True
        if devices.line.waiting and devices.keeps(now):
            self._serve(devices, now, effects, surplus=True)
        if devices.line.waiting:  # jobs whose tenant is under its guarantee, and will be above it with them
            self._serve(devices, now, effects, surplus=False)
        quota.stopped, started = True, -1
        while quota.stopped and started < len(effects):
            # Once more after a start: it may have taken the room of a large head for which another site keeps slots.
            started = len(effects)
            for site in sites:
                site.line.stopped = False
                if site.line.waiting and not quota.claimed:
                    self._serve(site, now, effects, surplus=True)
            quota.stopped = any(site.line.stopped for site in sites)

    def _serve(self, site: Site, now: int, effects: list[Effect], *, surplus: bool) -> None:
        """Dispatch those whose turn it is at one site, one at a time."""
        line = site.line
        while line.waiting and site.spare() and site.held_for is None:
            found = line.next_beyond(now, site) if surplus else line.next_within(now, site)
            if found is None:
                return
            entry, spot = found
            if now > entry.arrived:
                flow = entry.flow
                entry.waits += flow.waited(entry, now) if entry.tallies else flow.waits(entry.queued, now)
            self.unqueue(entry)
            self.start(site, spot, entry, surplus, now, effects)

    def start(self, site: Site, spot: Spot, entry: Entry, surplus: bool, now: int, effects: list[Effect]) -> None:
        self.take(site, spot, entry, surplus, now)
        effects.append(site.begun(entry))

    def take(self, site: Site, spot: Spot, entry: Entry, surplus: bool, now: int) -> None:
        """It runs from now on: its place, its quota and its loans are taken together."""
        flow = entry.flow
        node = flow.node
        entry.node = node
        entry.attempt += 1
        entry.dispatched = now
        entry.surplus = charged = surplus or (isinstance(site, Devices) and not site.owns(entry))
        site.occupy(spot, entry)
        site.quota.take(node, entry.ask)
        for quota, its, amount in entry.also:
            quota.take(its, amount)
        site.loans.took(node, entry, entry.ask, now)
        if entry.tallies:
            held = holds(entry.task, entry.ask)
            for tally in entry.tallies:
                if tally.take(held):
                    flow.account.turned(tally, now)
                    self._filled = True
        if charged:
            entry.charged = site.service(entry)
            flow.charge(entry.charged)
        self.replace(flow)
        if surplus:
            site.line.served(flow)
        site.turns += 1
        if flow.length and not flow.parked:
            site.explain(flow, now, fed=True)

    def replace(self, changed: Flow) -> None:
        """A tenant's use changed, and with it the place of each of its flows."""
        cast("Site", changed.room).line.place(changed)
        for flow in changed.others:
            if flow.length:
                cast("Site", flow.room).line.place(flow)

    def unpark(self, freed: list[object], now: int) -> None:
        for flow in freed:
            if isinstance(flow, Flow):
                parked, flow.parked = flow.parked, False
                site = cast("Site", flow.room)
                site.line.place(flow)
                if parked and flow.length:
                    site.explain(flow, now)

    def anew(self, now: int, effects: list[Effect]) -> None:
        """Quota changed under what waits: everybody is looked at again."""
        for site in self.state.all_sites():
            site.line.unpark()
        for pool in self.state.quotas:
            self.dispatch(pool, now, effects)

    def release(self, site: Site, entry: Entry, service: int, now: int) -> list[object]:
        """Give back what it held: its place, its quota, its loans; correct what was charged in advance.

        Returns the flows that waited for room on its tenant's path.
        """
        flow = entry.flow
        site.vacate(entry, now)
        if isinstance(site, Serving) and entry.replica_id not in site.replicas:
            replicas.give_back(self.state, entry.replica_id)  # it was lost, and this was the last on it
            self.state.count_devices()
        pool = entry.node.pool
        freed = self.state.quotas[pool].give(entry.node, entry.ask)
        if entry.tallies:
            held = holds(entry.task, entry.ask)
            for tally in entry.tallies:
                if tally.give(held):
                    freed += flow.account.turned(tally, now)
        for quota, its, amount in entry.also:
            freed += quota.give(its, amount)
        self.state.loans[pool].gave(entry.node, entry, now)
        if entry.surplus:
            flow.charge(service - entry.charged)
        self.observe(flow, 0, now)
        self.replace(flow)
        return freed
