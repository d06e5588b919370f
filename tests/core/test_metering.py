"""Metering: what is noted, given what happened and when."""

from commonpool.core.ledger import PLATFORM, Phase, Span, Standing
from commonpool.core.metering import NOTE_NS, Metering, Note, noted, pieces
from commonpool.core.model import NS_PER_HOUR, Group, LoanEnd, Outcome, UsageRecord
from commonpool.core.records import voided
from tests.core.clusters import Cluster, deployment, rules, starts
from tests.core.worlds import S, World, policy, tenant

H = NS_PER_HOUR


def standings(notes: list[Note]) -> list[Standing]:
    return [note for note in notes if isinstance(note, Standing)]


def spans(notes: list[Note]) -> list[tuple[str, Phase, int, int, int]]:
    found = [note for note in notes if isinstance(note, Span)]
    return [(span.id, span.phase, span.milli_gpu, span.start_ns, span.end_ns) for span in found]


def attempts(notes: list[Note]) -> list[UsageRecord]:
    return [note for note in notes if isinstance(note, UsageRecord)]


def test_time_is_cut_at_full_hours() -> None:
    assert list(pieces(H - 5, 2 * H + 3, 0)) == [(H - 5, H), (H, 2 * H), (2 * H, 2 * H + 3)]
    assert list(pieces(H, 2 * H, 0)) == [(H, 2 * H)]
    assert list(pieces(7, 7, 0)) == []
    # hours of a zone that is half an hour off
    assert list(pieces(0, H, H // 2)) == [(0, H // 2), (H // 2, H)]


def test_what_lasts_goes_on_from_the_full_hour() -> None:
    notes: list[Note] = []
    standing = Standing("main", H - 5, H - 5, 4000, {})
    standing = noted(standing, H - 2, 0, notes)
    assert standing.start_ns == H - 5
    standing = noted(standing, H, 0, notes)
    assert standing.start_ns == H
    noted(standing, H, 0, notes)
    assert [(note.start_ns, note.end_ns) for note in standings(notes)] == [(H - 5, H - 2), (H - 5, H)]


def test_a_pool_is_noted_once_a_minute_at_each_hour_and_when_it_changes() -> None:
    group = Group("g", guaranteed=3000)
    world = World(policy(tenant("a", 1000, group="g"), tenant("b", 500), groups=(group,)), replicas=0)
    metering = Metering(world.machine)
    world.now = H - 100 * S
    # given a pool that has just been seen, there is nothing to note yet
    assert metering.look(world.now) == []
    # when a minute has passed
    notes = metering.tick(world.now + NOTE_NS)
    owners = {"tenant:a": 1000, "tenant:b": 500, "group:g": 2000}
    assert standings(notes) == [Standing("main", H - 100 * S, H - 40 * S, 4000, owners)]
    assert metering.tick(H - 30 * S) == []
    # when the hour is over it is noted up to the hour and not beyond, though the tick comes late
    assert standings(metering.tick(H + S // 2)) == [Standing("main", H - 100 * S, H, 4000, owners)]
    assert metering.noted_until == H
    # when the guarantees change
    world.now = H + 7 * S
    world.configure(policy(tenant("a", 1000), tenant("b", 4000)))
    assert standings(metering.look(world.now)) == [Standing("main", H, H + 7 * S, 4000, owners)]
    # then they are noted as they are in force: scaled to what there is
    (standing,) = standings(metering.end(H + 9 * S))
    assert standing == Standing("main", H + 7 * S, H + 9 * S, 4000, {"tenant:a": 800, "tenant:b": 3200})
    assert metering.end(H + 10 * S) == []


def test_a_policy_that_changes_nothing_of_a_pool_is_no_other_standing() -> None:
    world = World(policy(tenant("a", 1000)), replicas=0)
    metering = Metering(world.machine)
    metering.look(5)
    world.configure(policy(tenant("a", 1000, weight=3)))
    assert metering.look(9) == []
    assert [standing.start_ns for standing in standings(metering.end(12))] == [5]


def test_a_replica_loads_serves_and_drains_and_what_it_serves_is_not_drained() -> None:
    world = Cluster(rules(tenant("a", 4000), models=(deployment("m", 1),)))
    metering = Metering(world.machine)
    (name,) = starts(world.tick())
    metering.look(world.now)
    began = world.now
    world.later(3)
    world.comes(name)
    assert spans(metering.look(world.now)) == [(name, Phase.LOADING, 2000, began, world.now)]
    served = world.now
    world.arrive("r1", "a")
    world.later(2)
    world.configure(rules(tenant("a", 4000)))  # the model is gone
    drained = world.now
    assert spans(metering.look(world.now)) == [(name, Phase.SERVING, 2000, served, drained)]
    drains = [metering.draining]
    world.later(4)
    world.end("r1")
    ended = world.now
    assert spans(metering.look(world.now)) == [
        (name, Phase.SERVING, 500, drained, ended),
        (name, Phase.DRAINING, 1500, drained, ended),
    ]
    world.later(1)
    world.goes(name)
    assert spans(metering.look(world.now)) == [(name, Phase.DRAINING, 2000, ended, world.now)]
    assert [*drains, metering.draining] == [True, False]
    assert spans(metering.end(world.now + S)) == []


def test_loading_is_the_one_tenants_or_the_platforms() -> None:
    only = deployment("m", 1)
    for who, account in (((tenant("a", 4000),), "tenant:a"), ((tenant("a", 2000), tenant("b", 2000)), PLATFORM)):
        world = Cluster(rules(*who, models=(only,)))
        metering = Metering(world.machine)
        world.tick()
        metering.look(world.now)
        (span,) = (note for note in metering.end(world.now + 1) if isinstance(note, Span))
        assert (span.account, span.phase, span.model) == (account, Phase.LOADING, "m")


def test_a_job_holds_what_it_was_given() -> None:
    world = World(policy(tenant("a", 4000)), replicas=0)
    metering = Metering(world.machine)
    world.now = 10
    world.submit("j", "a", 1500)
    metering.look(world.now)
    world.now = 40
    world.finish("j")
    (span,) = (note for note in metering.look(world.now) if isinstance(note, Span))
    assert span == Span("j", Phase.SERVING, "main", "", "tenant:a", 1500, 10, 40)


def test_what_runs_over_the_hour_is_noted_up_to_it_with_its_loans() -> None:
    world = World(policy(tenant("a", 500), tenant("b", 1500), milli_gpu=2000))
    metering = Metering(world.machine)
    world.now = H - 10 * S
    metering.look(world.now)
    world.arrive("a1", "a")
    world.arrive("a2", "a")  # borrows from b
    world.now = H - 4 * S
    world.end("a1")  # now a2 is within the guarantee
    world.now = H + S
    world.arrive("a3", "a")  # after the hour
    notes = {note.request_id: note for note in attempts(metering.tick(world.now))}
    assert set(notes) == {"a2"}
    note = notes["a2"]
    assert (note.outcome, note.run_ns, note.milli_gpu_ns) == (Outcome.RUNNING, 10 * S, 500 * 10 * S)
    assert note.micro_per_gpu_hour == 2_500_000  # to be charged, if nothing comes between
    assert [(loan.lender, loan.start_ns, loan.end_ns, loan.reason) for loan in note.loans] == [
        ("b", H - 10 * S, H - 4 * S, LoanEnd.COVERED)
    ]
    assert attempts(metering.tick(world.now + S)) == []


def test_a_loan_that_goes_on_ends_with_the_note_and_goes_on_when_it_is_voided() -> None:
    world = World(policy(tenant("a", 0), tenant("b", 2000), milli_gpu=2000))
    world.now = 100
    world.arrive("a1", "a")
    pending = world.machine.noted("a1", 100)
    assert pending is not None
    assert (pending.run_ns, pending.wait_ns, pending.replica) == (0, 0, "m-0")
    (loan,) = pending.loans
    assert (loan.start_ns, loan.end_ns, loan.reason) == (100, 100, LoanEnd.RUNNING)
    # when all that is left of it is that note, and the product was last known to live at 350
    record = voided(pending, 350)
    assert (record.outcome, record.status, record.reason) == (Outcome.FAILED, 500, "stopped")
    assert (record.run_ns, record.total_ns, record.milli_gpu_ns) == (250, 250, 250 * 500)
    assert record.micro_per_gpu_hour == 0
    (loan,) = record.loans
    assert (loan.start_ns, loan.end_ns, loan.reason) == (100, 350, LoanEnd.TASK_DONE)
    # one that was noted later than that ran until then
    later = world.machine.noted("a1", 500)
    assert later is not None
    assert voided(later, 350).run_ns == 400


def test_only_what_runs_is_noted_and_what_may_still_run_is_expected() -> None:
    world = World(policy(tenant("a", 500, elastic_cap=500)))
    machine = world.machine
    world.arrive("a1", "a")
    world.arrive("a2", "a")  # waits
    assert machine.noted("a2", 10) is None
    assert machine.noted("nobody", 10) is None
    assert machine.expects("a1", 1)
    assert not machine.expects("a1", 2)
    assert machine.expects("a2", 1)
    world.end("a1")
    assert not machine.expects("a1", 1)
    assert machine.expects("a2", 1)
