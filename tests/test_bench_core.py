"""Given the load of the core's benchmark, then it is steady; given its rounds, then the figures that are reported."""

from benchmarks.bench_core import QUICK, Round, report
from benchmarks.core_load import REPLICAS, Load, Size

SIZE = Size(tenants=20, queued=500, pairs=100, slots=4)


def test_every_slot_stays_taken_and_the_queue_stays_as_long() -> None:
    load = Load(SIZE)
    load.fill()
    load.arrive(load.requests(SIZE.queued))
    before = set(load.running)

    load.pairs(load.requests(SIZE.pairs))

    line = load.machine.state.sites["m"].line
    assert len(load.running) == REPLICAS * SIZE.slots
    assert line.waiting == SIZE.queued
    assert not before & set(load.running)


def test_some_of_what_runs_is_borrowed_from_idle_tenants() -> None:
    load = Load(SIZE)
    load.fill()
    load.arrive(load.requests(SIZE.queued))

    assert {loan.lender for loan in load.machine.state.loans["main"].open_loans()} >= {"idle-0", "idle-1"}


def test_the_report_takes_medians_and_the_worst_size_for_each_goal() -> None:
    few, many = QUICK
    pure = {few: [Round(20_000, 9_000, 5_000, 700)] * 3, many: [Round(25_000, 8_000, 5_000, 800)] * 3}
    compiled = {
        few: [Round(8_000, 3_000, 2_000, 300), Round(5_000, 3_000, 2_000, 300), Round(4_000, 3_000, 2_000, 300)],
        many: [Round(10_000, 2_000, 2_000, 400)],
    }

    said = report({"pure Python": pure, "compiled": compiled})

    assert "| pure Python | 10 | 50,000 | 20.0 | 9.0 | 5.0 | 700 |" in said
    assert "| compiled | 10 | 200,000 | 5.0 | 3.0 | 2.0 | 300 |" in said
    assert "| at least 100,000 pairs/s | 40,000 | 100,000 |" in said
    assert "| at most 1.3 times slower with most tenants | 1.25 | 2.00 |" in said
    assert "| at most 1,024 bytes queued | 800 | 400 |" in said
    assert "Compiled it is 2.5 to 4.0 times as fast; where nobody waits, 3.0 to 4.0 times." in said
