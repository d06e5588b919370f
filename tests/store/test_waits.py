"""The waits in every store: each record is counted once, and every period is made of the rows that are kept."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.model import NS_PER_S as S
from commonpool.core.model import Outcome, Tier, UsageRecord
from commonpool.core.waits import WINDOW_NS as WINDOW
from commonpool.core.waits import Tally
from commonpool.store.contract import QueryError, Store
from commonpool.store.memory import MemoryStore
from commonpool.store.waits import WAIT_LINES_MAX, Uncounted, WaitTable
from tests.store.places import Place
from tests.store.records import DAY, T0, refused, usage_record

TIERS = {"interactive": Tier("interactive", 2 * S, 3 * S)}


def waited(request_id: str, ended_ns: int, wait_ns: int = S, **changes: Any) -> UsageRecord:
    """It ended then, and waited for so long."""
    times = {"wait_ns": wait_ns, "first_token_ns": wait_ns + S, "run_ns": 2 * S, "total_ns": wait_ns + 2 * S}
    return usage_record(request_id, arrived_ns=ended_ns - wait_ns - 2 * S, **(times | changes))


def counted(store: Store, *records: UsageRecord) -> Store:
    store.add_usage(records)
    while store.count_waits(TIERS, 100).records == 100:
        continue
    return store


def rolled(store: Store, until_ns: int) -> Store:
    while store.roll_waits(until_ns):
        continue
    return store


def completed(table: WaitTable) -> dict[tuple[str, ...], int]:
    return {line.keys: line.tally.completed for line in table.lines}


def test_each_record_is_counted_once_however_often_it_comes(store: Store) -> None:
    # given records of which one came again, and one again with other content
    first = waited("r1", T0 + 1)
    store.add_usage([first, waited("r2", T0 + 2)])
    assert store.count_waits(TIERS, 100).records == 2
    assert store.count_waits(TIERS, 100).records == 0
    store.add_usage([first, waited("r2", T0 + 2, 9 * S), waited("r1", T0 + 3, attempt=2)])
    # then what is new is counted
    assert store.count_waits(TIERS, 100).records == 1
    assert store.waits((), T0, T0 + DAY, {}).total.completed == 3


def test_records_are_counted_a_few_at_a_time_in_the_order_in_which_they_came(store: Store) -> None:
    store.add_usage([waited(f"r{number}", T0 + number * WINDOW) for number in range(5)])
    assert store.uncounted_waits() == Uncounted(5, T0)
    found = [store.count_waits(TIERS, 2)]
    assert store.uncounted_waits() == Uncounted(3, T0 + 2 * WINDOW)
    found += [store.count_waits(TIERS, 2) for _ in range(3)]
    assert store.uncounted_waits() == Uncounted()
    assert [each.records for each in found] == [2, 2, 1, 0]
    assert list(found[1].minutes) == [(T0 + number * WINDOW, "a", "interactive") for number in (2, 3)]


def test_a_table_has_a_line_for_each_series_and_time(store: Store) -> None:
    counted(
        store,
        waited("r1", T0 + WINDOW - 1, 0),
        waited("r2", T0 + WINDOW, 5 * S),
        waited("r3", T0 + HOUR, S, tenant="b", model="n"),
        waited("r4", T0 + HOUR, S, tenant="b", tier="batch"),
        refused("r5", tenant="b", arrived_ns=T0 + DAY, first_token_ns=0, total_ns=0, reason="budget"),
        usage_record("j1", tenant="b", model="", endpoint="job"),  # no request
    )
    whole = T0, T0 + 2 * DAY
    tenants = store.waits(["tenant"], *whole, {})
    assert completed(tenants) == {("a",): 2, ("b",): 2}
    a, b = (line.tally for line in tenants.lines)
    assert (a.wait.count, a.wait.max_ns, a.judged.queue_promised, a.judged.queue_late) == (2, 5 * S, 2, 1)
    assert (a.judged.first_token_promised, a.judged.first_token_late) == (2, 1)
    assert (b.refused, b.judged.queue_promised) == ({"budget": 1}, 1)
    assert completed(store.waits(["model", "tier"], *whole, {"tenant": ["b"]})) == {
        ("m", "batch"): 1,
        ("m", "interactive"): 0,
        ("n", "interactive"): 1,
    }
    assert completed(store.waits(["tier", "window"], T0, T0 + HOUR + 1, {"tenant": ["a"]})) == {
        ("interactive", "2024-01-01T00:00Z"): 1,
        ("interactive", "2024-01-01T00:10Z"): 1,
    }
    hours = store.waits(["hour", "tenant"], T0, T0 + DAY, {})
    assert completed(hours) == {
        ("2024-01-01T00:00Z", "a"): 2,
        ("2024-01-01T01:00Z", "b"): 2,
    }
    assert [line.start_ns for line in hours.lines] == [T0, T0 + HOUR]
    assert completed(store.waits(["day"], *whole, {})) == {("2024-01-01",): 4, ("2024-01-02",): 0}
    assert [line.start_ns for line in tenants.lines] == [None, None]
    assert store.waits((), *whole, {}).lines == ()
    # and what is asked of nothing, or of nobody, has no lines
    assert store.waits(["tenant"], *whole, {"tenant": []}).lines == ()
    assert store.waits(["tenant"], T0 + 5 * DAY, T0 + 6 * DAY, {}).total.completed == 0


def test_a_period_is_made_of_whole_windows_and_says_which(store: Store) -> None:
    counted(store, waited("r1", T0), waited("r2", T0 + WINDOW))
    table = store.waits((), T0 + 5, T0 + WINDOW, {})
    assert (table.since_ns, table.until_ns, table.total.completed) == (T0, T0 + WINDOW, 1)
    table = store.waits((), T0 + 5, T0 + WINDOW + 1, {})
    assert (table.since_ns, table.until_ns, table.total.completed) == (T0, T0 + 2 * WINDOW, 2)
    # all of time is no more work than what is there
    assert store.waits((), 0, 2**63 - 1, {}).total.completed == 2
    assert MemoryStore().waits(["day"], 0, 2**63 - 1, {}).lines == ()


@pytest.mark.parametrize(
    ("by", "filters", "sentence"),
    [
        (["app"], {}, "Waits cannot be grouped by 'app'; allowed are tenant, model, tier, window, hour, day."),
        (["hour", "day"], {}, "Waits cannot be grouped by hour and day at once; name one of them."),
        ([], {"day": ["x"]}, "Waits cannot be filtered by 'day'; allowed are tenant, model, tier."),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(
    store: Store, by: Sequence[str], filters: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(QueryError) as caught:
        store.waits(by, T0, T0 + 1, filters)
    assert str(caught.value) == sentence
    with pytest.raises(QueryError, match="until_ns is -1"):
        store.waits((), 0, -1, {})


def test_an_answer_has_so_many_lines_at_most() -> None:
    store = MemoryStore()
    records = [waited(f"r{n}", T0, tenant=f"t{n}") for n in range(WAIT_LINES_MAX + 1)]
    store.add_usage(records)
    assert store.count_waits(TIERS, len(records)).records == len(records)
    assert len(store.waits(["tier"], T0, T0 + 1, {}).lines) == 1
    with pytest.raises(QueryError, match=r"more than 10,000 lines: ask for less time or fewer tenants"):
        store.waits(["tenant"], T0, T0 + 1, {})


def test_promises_are_added_up_by_tenant_and_tier(store: Store) -> None:
    counted(
        store,
        waited("r1", T0),
        waited("r2", T0 + DAY, 3 * S, model="n"),
        waited("r3", T0 + DAY, tenant="b"),
        waited("r4", T0 + 2 * DAY, tier="batch"),
    )
    rolled(store, T0 + 3 * DAY)
    found = store.judged_waits(T0, T0 + 2 * DAY)
    assert {key: (each.queue_promised, each.queue_late) for key, each in found.items()} == {
        ("a", "interactive"): (2, 1),
        ("b", "interactive"): (1, 0),
    }


def test_what_is_forgotten_is_still_known_of_longer_times(store: Store) -> None:
    # given an attempt every ten minutes for three days
    counted(store, *(waited(f"r{n}", T0 + n * WINDOW) for n in range(3 * 144)))
    # when windows are to be forgotten before hours and days are made of them, they stay
    store.forget_waits(T0 + DAY, T0 + DAY)
    assert store.waits((), T0, T0 + WINDOW, {}).since_ns == T0
    rolled(store, T0 + 3 * DAY)
    # and else those of whole days go
    store.forget_waits(T0 + 2 * DAY + HOUR, T0 + DAY)
    last = T0 + 3 * DAY
    for by, first, lines in (("window", T0 + 2 * DAY, 144), ("hour", T0 + DAY, 48), ("day", T0, 3)):
        table = store.waits([by], T0, last, {})
        assert (table.since_ns, len(table.lines)) == (first, lines)
    assert store.waits((), T0, last, {}).total.completed == 432
    table = store.waits((), T0 + DAY + WINDOW, T0 + DAY + 2 * WINDOW, {})
    assert (table.since_ns, table.until_ns, table.total.completed) == (T0 + DAY, T0 + DAY + HOUR, 6)
    table = store.waits((), T0 + WINDOW, T0 + 2 * WINDOW, {})
    assert (table.since_ns, table.until_ns, table.total.completed) == (T0, T0 + DAY, 144)
    # what is heard of late is still counted
    counted(store, waited("late", T0), waited("later", T0 + DAY))
    assert completed(store.waits(["day"], T0, last, {})) == {
        ("2024-01-01",): 145,
        ("2024-01-02",): 145,
        ("2024-01-03",): 144,
    }


def test_what_was_stored_before_waits_were_counted_is_counted(place: Place) -> None:
    with closing(place.open()) as store:
        store.add_usage([waited("r1", T0)])
    with closing(place.open()) as store:
        assert store.count_waits(TIERS, 100).records == 1
        assert store.waits((), T0, T0 + 1, {}).total.completed == 1


class Making(RuleBasedStateMachine):
    """A store whose rows are counted, rolled and forgotten in any order, of attempts that come in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.came: list[UsageRecord] = []
        self.counted = 0

    @rule(steps=st.lists(st.integers(0, 4 * 144 - 1), min_size=1, max_size=4), seconds=st.integers(0, 9))
    def end(self, steps: list[int], seconds: int) -> None:
        new = [
            waited(f"r{len(self.came) + n}", T0 + step * WINDOW + n, seconds * S, tenant="ab"[step % 2])
            for n, step in enumerate(steps)
        ]
        self.came += new
        self.store.add_usage(new)

    @rule(limit=st.integers(1, 5))
    def count(self, limit: int) -> None:
        self.counted += self.store.count_waits(TIERS, limit).records

    @rule(hours=st.integers(0, 100), times=st.integers(1, 200))
    def roll(self, hours: int, times: int) -> None:
        for _ in range(times):
            self.store.roll_waits(T0 + hours * HOUR)

    @rule(days=st.integers(0, 5), more=st.integers(0, 3))
    def forget(self, days: int, more: int) -> None:
        self.store.forget_waits(T0 + (days + more) * DAY, T0 + days * DAY)

    @rule(
        since=st.integers(0, 600),
        length=st.integers(0, 600),
        by=st.sampled_from(["", "tenant", "window", "hour", "day"]),
    )
    def ask(self, since: int, length: int, by: str) -> None:
        table = self.store.waits([by] if by else [], T0 + since * WINDOW + 1, T0 + (since + length) * WINDOW, {})
        expected = Tally()
        for record in self.came[: self.counted]:
            if table.since_ns <= record.arrived_ns + record.total_ns < table.until_ns:
                other = MemoryStore()
                counted(other, record)
                expected.merge(other.waits((), 0, 2**62, {}).total)
        assert table.total.row() == expected.row()
        lines = Tally()
        for line in table.lines:
            lines.merge(line.tally)
        assert not by or lines.row() == expected.row()

    @invariant()
    def all_is_counted_once(self) -> None:
        total = self.store.waits((), 0, 2**62, {}).total
        assert (total.completed, total.wait.count) == (self.counted, self.counted)
        found = self.store.judged_waits(0, 2**62)
        assert sum(each.queue_promised for each in found.values()) == self.counted


def test_every_order_of_making_answers_alike() -> None:
    run_state_machine_as_test(Making, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))


def test_outcomes_are_told_apart_in_every_store(store: Store) -> None:
    counted(
        store,
        waited("r1", T0, outcome=Outcome.FAILED),
        usage_record("r3", outcome=Outcome.CANCELLED, replica="", wait_ns=7 * S, first_token_ns=0, total_ns=7 * S),
        waited("r4", T0, outcome=Outcome.CANCELLED),
        refused("r5", first_token_ns=0, reason="queue_full"),
    )
    total = store.waits((), T0, T0 + DAY, {}).total
    assert (total.failed, total.abandoned, total.cancelled, total.refused) == (1, 1, 1, {"queue_full": 1})
    assert (total.unserved.count, total.unserved.max_ns) == (1, 7 * S)
