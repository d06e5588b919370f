"""Laws of what is taken and given back: caps, slots, loans, the ledger, records. Each holds after every event."""

from collections import Counter
from operator import le

import msgspec

from commonpool.core.effects import Dispatch, Effect, Settle, Start
from commonpool.core.entries import holds
from commonpool.core.events import DevicesChanged, Event, Ticked
from commonpool.core.limits import NOTHING
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Request, UsageRecord
from commonpool.core.queueing import Flow
from commonpool.core.sites import Serving
from tests.core.laws import Commons, may_run, takes, thorough
from tests.core.replay import Log
from tests.core.splits import split
from tests.core.worlds import S


class Accounts(Commons):
    """`used` and `lent` are the integrals over time of what the ledger says, in milli_gpu × ns.

    `resumed_on` are the replicas on which something ran before this machine was made, whatever fits there;
    `were_ready` the models that had replicas before the last event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resumed_on: set[str] = set()
        self.were_ready: set[str] = set()
        self.used: Counter[str] = Counter()
        self.lent: Counter[tuple[str, str]] = Counter()
        self.all_accounts = self.all_devices = 0

    def laws(self, event: Event, effects: list[Effect]) -> None:
        self.nothing_is_added_above_a_cap(event, effects)
        self.use_is_what_runs()
        self.accounts_count_what_waits()
        self.tallies_count_what_waits_and_what_runs(effects)
        self.loans_borrowed_are_loans_lent()
        self.waits_sum_to_the_wait(effects)
        if isinstance(event, Ticked):
            self.no_request_waits_for_ever()
        self.were_ready = {name for name, site in self.machine.state.sites.items() if site.ready}

    # -- law: use never exceeds a cap ----------------------------------------------------------------------------------

    def nothing_is_added_above_a_cap(self, event: Event, effects: list[Effect]) -> None:
        """What was there when a cap was cut may be above it; nothing is ever added to it."""
        for entry in self.begun(effects):
            for quota, node, _ in takes(entry):
                assert quota.use <= quota.capacity
                for step in node.path():
                    assert step.use <= step.cap
                assert node.running_max is None or node.running <= node.running_max
            tenant = self.in_force.tenants[entry.task.tenant]
            granted = self.grants.get(tenant.name, (0, 0))[0]
            assert entry.node.use <= min(max(tenant.elastic_cap, granted), tenant.hard_cap)
            site = entry.flow.room
            if not isinstance(site, Serving):
                devices = self.machine.state.devices[entry.node.pool]
                there = devices.quota.capacity
                if devices.inventory is not None:  # what runs on nodes that are gone is beside those that are there
                    there = max(there, devices.inventory.capacity + devices.away)
                assert self.by_replicas(entry.node.pool) + devices.by_jobs <= there
        if isinstance(event, DevicesChanged):
            quota = self.machine.state.quotas[event.pool]
            assert quota.capacity == min(self.in_force.pools[event.pool].milli_gpu, event.milli_gpu)
            top = [*quota.tenants.values(), *quota.groups.values()]
            assert sum(node.guaranteed for node in top if node.parent is None) <= quota.capacity

    def by_replicas(self, pool: str) -> int:
        """What replicas hold of a pool, those that start included."""
        sites = self.machine.state.sites.values()
        there = sum(r.replica.milli_gpu for site in sites for r in site.replicas.values() if r.pool == pool)
        return there + sum(s.replica.milli_gpu for site in sites for s in site.crew.starting.values() if s.pool == pool)

    # -- law: what is taken is what runs -------------------------------------------------------------------------------

    def use_is_what_runs(self) -> None:
        state = self.machine.state
        running = [self.entry(name) for name in self.running]
        assert {e.id for e in self.machine.tasks.entries.values() if not e.waiting} == set(self.running)
        taken: Counter[object] = Counter()
        for entry in running:
            for quota, node, amount in takes(entry):
                taken[quota] += amount
                for step in node.path():
                    taken[step] += amount
        for quota in (*state.quotas.values(), *(q for others in state.others.values() for q in others.values())):
            assert quota.use == taken[quota]
            for node in (*quota.tenants.values(), *quota.groups.values()):
                assert node.use == taken[node]
        for site in state.sites.values():
            for spot in site.replicas.values():
                mine = [e for e in running if e.replica_id == spot.id]
                assert spot.slots_used == sum(e.sequences for e in mine)
                assert spot.kv_used == sum(e.kv for e in mine)
                full = spot.slots_used <= spot.slots and spot.kv_used <= spot.kv_tokens
                assert full or spot.id in self.resumed_on
            assert site.free_slots == sum(max(0, s.slots - s.slots_used) for s in site.replicas.values() if s.open)
        for pool, devices in state.devices.items():
            assert devices.by_jobs == sum(e.ask for e in running if e.flow.room is devices)
            assert devices.by_replicas == self.by_replicas(pool)

    def accounts_count_what_waits(self) -> None:
        state = self.machine.state
        waiting = [self.entry(name) for name in self.waiting]
        assert {e.id for e in self.machine.tasks.entries.values() if e.waiting} == set(self.waiting)
        for site in state.all_sites():
            assert site.line.waiting == sum(flow.length for flow in site.line.flows.values())
        for name, account in state.accounts.items():
            mine = [e for e in waiting if e.task.tenant == name]
            assert (account.waiting, account.asked) == (len(mine), sum(e.ask for e in mine))
            assert sum(f.work for f in account.flows) == sum(e.work for e in mine)

    # -- law: what apps and keys have taken of their limits is what waits and runs -------------------------------------

    def tallies_count_what_waits_and_what_runs(self, effects: list[Effect]) -> None:
        """None is ever filled above its concurrent_requests; what was above it when that was cut may go on."""
        state = self.machine.state
        entries = list(self.machine.tasks.entries.values())
        every = {tally: None for account in state.accounts.values() for tally in account.apps.values()}
        every |= dict.fromkeys(state.keys.values()) | {tally: None for entry in entries for tally in entry.tallies}
        for tally in every:
            mine = [entry for entry in entries if tally in entry.tallies]
            assert tally.running == sum(not entry.waiting for entry in mine)
            assert tally.waiting == sum(entry.waiting for entry in mine)
            held = [holds(entry.task, entry.ask) for entry in mine if not entry.waiting]
            assert tally.held == tuple(map(sum, zip(NOTHING, *held, strict=True)))
        for entry in self.begun(effects):
            for tally in entry.tallies:
                assert tally.running <= (tally.running_max or len(entries))
                assert (
                    tally.held_max is None
                    or all(map(le, tally.held, tally.held_max))
                    or isinstance(entry.task, Request)
                )
        for account in state.accounts.values():
            for tally, lanes in account.lanes.items():
                for lane, flow in lanes.items():
                    mine = [entry for entry in flow.waiting() if tally in entry.tallies]
                    assert mine
                    assert (lane.length, lane.work) == (len(mine), sum(entry.work for entry in mine))
            for flow in account.flows:
                waiting = list(flow.waiting())
                if isinstance(flow.room, Serving):
                    idle = [entry for entry in waiting if not may_run(entry)]
                    assert (flow.idle_length, flow.idle_work) == (len(idle), sum(entry.work for entry in idle))
                assert {tally for entry in waiting for tally in entry.tallies} == {
                    tally for tally, lanes in account.lanes.items() if flow in lanes.values()
                }

    # -- law: loans borrowed are loans lent ----------------------------------------------------------------------------

    def loans_borrowed_are_loans_lent(self) -> None:
        state = self.machine.state
        for pool, quota in state.quotas.items():
            loans = state.loans[pool]
            opened = loans.open_loans()
            lent = sum(loans.lent(name) for name in quota.tenants) + loans.lent("")
            gone = [loan for loan in opened if loan.lender and loan.lender not in {*quota.tenants, *quota.groups}]
            assert not gone
            of_groups = sum(loans.lent_by_group(name) for name in quota.groups)
            borrowed = sum(loans.borrowed(name) for name in quota.tenants)
            assert lent + of_groups == borrowed == sum(loan.milli_gpu for loan in opened)
            for name, node in quota.tenants.items():
                assert sum(loan.milli_gpu for loan in opened if loan.borrower == name) == loans.borrowed(name)
                assert loans.borrowed(name) <= node.over_guarantee
                assert loans.lent(name) <= node.lendable
            assert all(loan.milli_gpu > 0 and loan.task.id in self.running for loan in opened)

    # -- law: the accounts sum to devices × time -----------------------------------------------------------------------

    def pass_time(self, ns: int) -> None:
        state = self.machine.state
        for pool, quota in state.quotas.items():
            accounts = split(quota, state.loans[pool])
            for name, milli_gpu in accounts.used.items():
                self.used[name] += milli_gpu * ns
            for loan in state.loans[pool].open_loans():
                self.lent[loan.lender, loan.borrower] += loan.milli_gpu * ns
            assert min([*accounts.idle.values(), *accounts.idle_of_groups.values()], default=0) >= 0
            assert accounts.idle_unowned >= 0
            self.all_accounts += accounts.total * ns
            self.all_devices += max(quota.capacity, quota.use) * ns  # what runs on after devices were lost counts too
        super().pass_time(ns)

    # -- law: every request is served, or refused, within twice its max_wait -------------------------------------------

    def no_request_waits_for_ever(self) -> None:
        for entry in map(self.entry, self.waiting):
            site = entry.flow.room
            if isinstance(site, Serving):
                patient = site.ready or site.name in self.were_ready
                assert self.world.now < entry.deadline + (entry.deadline - entry.arrived if patient else 0)

    # -- law: every wait has its causes --------------------------------------------------------------------------------

    def waits_sum_to_the_wait(self, effects: list[Effect]) -> None:
        """Of a later attempt the time that the one before ran is left out."""
        for effect in effects:
            if isinstance(effect, Dispatch | Start) or (isinstance(effect, Settle) and not effect.record.replica):
                told = effect.record if isinstance(effect, Settle) else effect
                assert all(wait.ns > 0 for wait in told.waits)
                total = sum(wait.ns for wait in told.waits)
                assert total <= told.wait_ns
                assert total == told.wait_ns or told.attempt > 1

    # -- law: records --------------------------------------------------------------------------------------------------

    def each_attempt_is_recorded_once(self) -> None:
        keys = [(r.request_id, r.attempt) for r in self.world.records]
        assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.pass_time(S)
        self.finish()
        assert self.tasks == {}
        self.nothing_is_left()
        self.the_records_are_the_ledger(self.world.records)
        self.a_log_replays_to_the_same_effects()

    # -- law: replay is identical, byte for byte -----------------------------------------------------------------------

    def a_log_replays_to_the_same_effects(self) -> None:
        log = msgspec.json.encode(Log(self.first_rules, self.world.log))
        kept = msgspec.json.decode(log, type=Log)
        machine = Machine(kept.policy)
        again = [effect for event, now in kept.events for effect in machine.handle(event, now)]
        assert msgspec.json.encode(again) == msgspec.json.encode(self.world.effects)

    def nothing_is_left(self) -> None:
        state = self.machine.state
        assert not self.machine.tasks.entries
        self.use_is_what_runs()
        self.accounts_count_what_waits()
        for pool, quota in state.quotas.items():
            assert state.loans[pool].open_loans() == []
            assert sum(state.loans[pool].lent(name) for name in ("", *quota.tenants)) == 0
            for node in (*quota.tenants.values(), *quota.groups.values()):
                assert (node.use, node.running) == (0, 0)
                assert not any(flow.length for flow in node.waiters if isinstance(flow, Flow))
            assert quota.claimed == ""
        for account in state.accounts.values():
            assert (account.waiting, account.asked, account.by_jobs) == (0, 0, 0)
        for site in state.all_sites():
            assert site.held_for is None
            for flow in site.line.flows.values():
                assert (flow.length, flow.asked, flow.work, flow.contesting) == (0, 0, 0, False)

    def the_records_are_the_ledger(self, records: list[UsageRecord]) -> None:
        assert self.all_accounts == self.all_devices
        used: Counter[str] = Counter()
        lent: Counter[tuple[str, str]] = Counter()
        for record in records:
            used[record.tenant] += record.milli_gpu_ns
            for loan in record.loans:
                assert loan.request_id == record.request_id
                lent[loan.lender, loan.borrower] += loan.milli_gpu * (loan.end_ns - loan.start_ns)
        assert +used == +self.used
        assert +lent == +self.lent
        assert sum(isinstance(effect, Settle) for effect in self.world.effects) == len(records)
        assert all(r.milli_gpu_ns == 0 for r in records if r.outcome is Outcome.REFUSED)


TestAccounts = Accounts.TestCase
TestAccounts.settings = thorough(40)
