"""Laws of the order: nothing idle while somebody allowed waits, and nobody passed by who borrows."""

from commonpool.core.devices import Devices
from commonpool.core.effects import Effect
from commonpool.core.entries import Entry
from commonpool.core.events import Event, Produced
from commonpool.core.queueing import Flow
from commonpool.core.sites import Site
from tests.core.laws import Commons, could_start, may_run, thorough


def heads(site: Site, now: int) -> list[tuple[Flow, list[Entry]]]:
    """By flow what may go next: its head, and at the devices the smaller jobs behind one that is not overdue."""
    found = []
    for flow in site.line.flows.values():
        head = flow.head(now)
        jobs = isinstance(site, Devices)
        if jobs and flow.length and (head is None or head.deadline > now):
            found.append((flow, list(flow.waiting())[:32]))
        elif head is not None:
            found.append((flow, [head]))
    return found


def borrows(entry: Entry) -> bool:
    """Whether not all of what it takes is within its tenant's guarantee."""
    if not isinstance(entry.flow.room, Devices):
        return not entry.flow.node.entitled
    takes = [(entry.flow.node, entry.ask), *((its, amount) for _, its, amount in entry.also)]
    return any(its.use + amount > its.guaranteed for its, amount in takes)


class Order(Commons):
    """The laws are looked at after every event, but for those that only count what was produced."""

    def laws(self, event: Event, effects: list[Effect]) -> None:
        self.nobody_is_passed_by_who_borrows(effects)
        self.a_head_is_the_first_of_what_has_room_under_its_own_limits()
        if isinstance(event, Produced):
            return
        self.nothing_is_idle_while_somebody_allowed_waits()
        self.what_is_kept_is_kept_for_somebody()

    def nobody_is_passed_by_who_borrows(self, effects: list[Effect]) -> None:
        """Law: what was started from the surplus has not taken what somebody under its guarantee waits for."""
        for entry in self.begun(effects):
            if not entry.surplus:
                continue
            pool = entry.node.pool
            for site in self.machine.state.sites_of[pool]:
                for flow, (head, *_) in heads(site, self.world.now):
                    if flow.rank() >= 0 and not borrows(head) and site.held_for is None:
                        assert not could_start(head, self.world.now, gone=entry), (head.id, entry.id)

    def a_head_is_the_first_of_what_has_room_under_its_own_limits(self) -> None:
        """Law: while an app or a key runs as many as it may, what it has waiting is passed, and nobody else waits.

        A job that asks for more than its app may still hold keeps the next ones of that app from being the head.
        """
        now = self.world.now
        for site in self.machine.state.all_sites():
            for flow in site.line.flows.values():
                head = flow.head(now)
                assert head is None or may_run(head)
                if isinstance(site, Devices):
                    continue
                may = [each for each in flow.waiting() if may_run(each)]
                if not may:
                    assert head is None
                    continue
                by_deadline = min(may, key=lambda each: (each.deadline, each.seq))
                by_priority = min(may, key=lambda each: (-each.priority, each.seq))
                # The pace that counts is that of its last change by half, so it may be urgent too early, or too late.
                assert head in (by_deadline, by_priority)
                assert by_deadline.deadline > now or head is by_deadline
                assert flow.earliest() is by_deadline

    def nothing_is_idle_while_somebody_allowed_waits(self) -> None:
        """Law: what could start and does not is kept back for a reason that is known."""
        now = self.world.now
        for site in self.machine.state.all_sites():
            for flow, entries in heads(site, now):
                for entry in entries:
                    assert not could_start(entry, now) or self.kept_back(site, flow, entry), entry.id

    def kept_back(self, site: Site, flow: Flow, entry: Entry) -> bool:
        """For who needs much room at once, for a tenant that waits for its own, or for who has had less."""
        claim = site.quota.claimed
        if isinstance(site, Devices) and not (
            claim and flow.rank() < 0
        ):  # who has a claim may use it for any of its jobs
            claim = claim or site.claimed
            claim = "" if claim == flow.tenant else claim
        return (
            site.held_for is not None
            or (claim != "" and borrows(entry))
            or (flow.rank() < 0 and self.has_had_more(site, flow))
        )

    def has_had_more(self, site: Site, flow: Flow) -> bool:
        for other in site.line.flows.values():
            patience = site.patience(other, self.world.now) if other.contesting else None
            if patience is not None and flow.counter > other.counter + other.scaled(patience):
                return True
        return False

    def what_is_kept_is_kept_for_somebody(self) -> None:
        state, now = self.machine.state, self.world.now
        for pool, quota in state.quotas.items():
            waiting = [entry for site in state.sites_of[pool] for _, entries in heads(site, now) for entry in entries]
            if quota.claimed:
                mine = [entry for entry in waiting if entry.flow.tenant == quota.claimed]
                assert any(quota.free_for(entry.node) < entry.ask for entry in mine)
            devices = state.devices[pool]
            if devices.claimed:
                mine = [entry for entry in waiting if entry.flow.tenant == devices.claimed]
                short = any(other.free_for(its) < amount for entry in mine for other, its, amount in entry.also)
                assert short or (devices.kept_for is not None and devices.kept_for.waiting)
            for site in state.sites_of[pool]:
                assert site.held_for is None or site.held_for in [
                    entry for entry in waiting if entry.flow.room is site and entry.deadline <= now
                ]


TestOrder = Order.TestCase
TestOrder.settings = thorough(40)
