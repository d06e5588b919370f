"""The laws of the machine, over random policies, arrivals, ends, cancellations, losses and changes of quota."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from commonpool.core.effects import Dispatch, Refuse, Settle
from commonpool.core.events import ReplicaDraining, ReplicaLost
from commonpool.core.machine import Machine
from commonpool.core.model import Group, Outcome, Tenant, Usage
from tests.core.worlds import World, policy, tenant

NAMES = ("a", "b", "c")
share = st.integers(0, 8).map(lambda halves: halves * 250)


@st.composite
def tenants(draw: st.DrawFn) -> tuple[Tenant, ...]:
    found = []
    for name in NAMES:
        guaranteed = draw(share)
        cap = max(guaranteed, draw(share))
        found.append(
            tenant(
                name,
                guaranteed,
                reserved=draw(st.sampled_from([0, guaranteed, guaranteed // 2])),
                elastic_cap=cap,
                weight=draw(st.integers(1, 3)),
                group=draw(st.sampled_from([None, "g"])),
                max_wait_ns=draw(st.sampled_from([1, 50])) * 1_000_000_000,
            )
        )
    return tuple(found)


class Laws(RuleBasedStateMachine):
    """Two replicas of four slots; a request uses 500 milli_gpu a sequence."""

    @initialize(members=tenants(), cap=st.sampled_from([1500, 4000]))
    def start(self, members: tuple[Tenant, ...], cap: int) -> None:
        self.first_policy = policy(*members, groups=(Group("g", None, cap),))
        self.world = World(self.first_policy, replicas=2)
        self.names = 0
        self.quota_cut = False
        self.waiting: set[str] = set()

    def _note(self, mark: int) -> None:
        for effect in self.world.effects[mark:]:
            if isinstance(effect, (Dispatch, Refuse)):
                self.waiting.discard(effect.request_id)

    @rule(
        name=st.sampled_from(NAMES),
        tier=st.sampled_from(["interactive", "batch"]),
        sequences=st.integers(1, 3),
        tokens=st.integers(1, 900),
    )
    def arrive(self, name: str, tier: str, sequences: int, tokens: int) -> None:
        request_id = f"{name}{self.names}"
        self.names += 1
        mark = len(self.world.effects)
        self.waiting.add(request_id)
        self.world.arrive(request_id, name, tier, sequences=sequences, tokens_in=tokens, tokens_out_max=50)
        self._note(mark)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.COMPLETED, Outcome.CANCELLED, Outcome.FAILED]))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.world.running)))
        retry = outcome is Outcome.FAILED and data.draw(st.booleans())
        mark = len(self.world.effects)
        before = len(self.world.records)
        self.world.end(request_id, outcome, usage=Usage(10, 0, data.draw(st.integers(0, 40))), retry=retry)
        assert len(self.world.records) >= before + 1
        self._note(mark)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.waiting)))
        mark = len(self.world.effects)
        self.world.cancel(request_id)
        self.waiting.discard(request_id)
        self._note(mark)

    @rule(seconds=st.sampled_from([0.001, 1, 60]))
    def wait(self, seconds: float) -> None:
        mark = len(self.world.effects)
        self.world.later(seconds).tick()
        self._note(mark)

    @rule(members=tenants(), cap=st.sampled_from([1500, 4000]), gone=st.sampled_from([None, *NAMES]))
    def reconfigure(self, members: tuple[Tenant, ...], cap: int, gone: str | None) -> None:
        mark = len(self.world.effects)
        members = tuple(each for each in members if each.name != gone)
        self.world.configure(policy(*members, groups=(Group("g", None, cap),)))
        self.quota_cut = True
        self._note(mark)

    @rule(replica=st.sampled_from(["m-0", "m-1"]), gone=st.booleans())
    def replica_goes_and_another_comes(self, replica: str, gone: bool) -> None:
        mark = len(self.world.effects)
        if gone:
            self.world.send(ReplicaLost(replica))
        else:
            self.world.send(ReplicaDraining(replica))
        if len(self.world.machine.state.sites["m"].replicas) < 3:
            self.world.ready(f"m-{len(self.world.log)}")
        self._note(mark)

    # -- laws ----------------------------------------------------------------------------------------------------------

    @invariant()
    def use_is_what_runs_and_never_above_a_cap(self) -> None:
        state = self.world.machine.state
        quota = state.quotas["main"]
        running = [e for e in self.world.machine._entries.values() if not e.waiting]
        assert quota.use == sum(e.ask for e in running)
        assert len(running) == len(self.world.running)
        for node in quota.tenants.values():
            assert node.use == sum(e.ask for e in running if e.node is node)
            for step in node.path():
                assert self.quota_cut or step.use <= step.cap
        assert quota.reserved_idle == sum(n.reserved_idle for n in quota.tenants.values())
        for replica in state.sites["m"].replicas.values():
            mine = [e for e in running if e.replica_id == replica.replica.id]
            assert replica.slots_used == sum(e.sequences for e in mine) <= replica.replica.slots
            assert replica.kv_used == sum(e.kv for e in mine) <= replica.replica.kv_tokens

    @invariant()
    def loans_borrowed_are_loans_lent(self) -> None:
        quota = self.world.machine.state.quotas["main"]
        loans = self.world.machine.state.loans["main"]
        opened = loans.open_loans()
        for name, node in quota.tenants.items():
            borrowed = sum(loan.milli_gpu for loan in opened if loan.borrower == name)
            assert borrowed == loans.borrowed(name) <= node.over_guarantee
            assert self.quota_cut or borrowed == node.over_guarantee
            assert sum(loan.milli_gpu for loan in opened if loan.lender == name) == loans.lent(name) <= node.lendable
        assert all(loan.milli_gpu > 0 and loan.lender != loan.borrower for loan in opened)
        if not self.quota_cut:
            assert 0 <= loans.lent("") <= quota.unowned

    @invariant()
    def no_slot_is_idle_while_someone_allowed_waits(self) -> None:
        state = self.world.machine.state
        site = state.sites["m"]
        for flow in site.line.flows.values():
            entry = flow.head(self.world.now)
            if entry is None:
                continue
            blocked = site.quota.blocker(flow.node, entry.ask)
            room = site.quota.free_for(flow.node) >= entry.ask
            beyond = flow.node.use >= flow.node.guaranteed
            behind = [(other, site.patience(other, self.world.now)) for other in site.line.flows.values()]
            has_had_more = any(
                other.contesting and patience is not None and flow.counter > other.counter + other.scaled(patience)
                for other, patience in behind
            )
            kept = site.held or (beyond and (site.quota.claimed or has_had_more))
            assert blocked or not room or kept or site.free_slots <= 0 or site._roomiest(entry) is None

    @invariant()
    def who_contests_stands_where_its_counter_says(self) -> None:
        line = self.world.machine.state.sites["m"].line
        for place in line._contest:
            flow = place.flow
            assert flow.place is not place or place.key == flow.place_key <= flow.key == flow.counter

    @invariant()
    def accounts_count_what_waits(self) -> None:
        state = self.world.machine.state
        assert sum(f.length for f in state.sites["m"].line.flows.values()) == state.sites["m"].line.waiting
        assert {e.id for e in self.world.machine._entries.values() if e.waiting} >= self.waiting
        for name, account in state.accounts.items():
            mine = [e for e in self.world.machine._entries.values() if e.waiting and e.task.tenant == name]
            assert account.waiting == len(mine)
            assert sum(f.work for f in account.flows) == sum(e.work for e in mine)

    @invariant()
    def each_attempt_is_recorded_once(self) -> None:
        keys = [(r.request_id, r.attempt) for r in self.world.records if r.outcome is not Outcome.REFUSED]
        assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(10_000):
            if not self.world.running:
                break
            self.world.later(1).end(self.world.running[0])
        assert self.world.machine.state.quotas["main"].use == 0
        assert self.world.machine.state.loans["main"].open_loans() == []
        again = Machine(self.first_policy)
        effects = [effect for event, now in self.world.log for effect in again.handle(event, now)]
        assert effects == self.world.effects
        assert sum(isinstance(e, Settle) for e in effects) == len(self.world.records)


TestLaws = Laws.TestCase
TestLaws.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
