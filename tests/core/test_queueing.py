"""Order inside a flow, against the simplest thing that says the same."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.model import Cause, Wait
from commonpool.core.pace import Pace
from tests.core.flows import entry, flow

# (priority, deadline, when it turns urgent), in order of arrival: max_wait is one per tenant, so the deadlines rise.
requests = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 100), st.integers(0, 100)), max_size=120).map(
    lambda found: [
        (priority, deadline, min(deadline, urgent))
        for (priority, _, urgent), deadline in zip(found, sorted(each[1] for each in found), strict=True)
    ]
)


@settings(max_examples=200)
@given(requests=requests, now=st.integers(0, 110), gone=st.sets(st.integers(0, 119)), data=st.data())
def test_a_flow_serves_by_deadline_while_something_is_urgent_and_by_priority_otherwise(
    requests: list[tuple[int, int, int]], now: int, gone: set[int], data: st.DataObject
) -> None:
    queue = flow("a")
    entries = [entry(queue, seq, *fields) for seq, fields in enumerate(requests)]
    for each in entries:
        queue.push(each)
    waiting = [each for each in entries if each.seq not in gone]
    for each in entries:
        if each.seq in gone:
            queue.remove(each)
    while waiting:
        urgent = any(each.deadline - each.ahead <= now for each in waiting)
        by_deadline = min(waiting, key=lambda e: (e.deadline, e.seq))
        by_priority = min(waiting, key=lambda e: (-e.priority, e.seq))
        head = queue.head(now)
        # What has left may make its neighbours urgent too early, never too late.
        assert head is by_deadline or (head is by_priority and not urgent)
        assert queue.earliest() is by_deadline
        assert queue.length == queue.asked == len(waiting)
        queue.remove(head)
        if head.seq % 3 == 0 and data.draw(st.booleans()):
            queue.push(head)  # another attempt takes its old place
        else:
            waiting.remove(head)
        assert sorted(e.seq for e in queue.waiting()) == sorted(e.seq for e in waiting)
    assert queue.head(now) is None


def test_while_nothing_is_urgent_priority_decides_however_many_wait() -> None:
    queue = flow("a")
    for seq in range(5_000):
        queue.push(entry(queue, seq, seq % 3, 1_000_000 + seq, 1_000_000 + seq))
    for n in range(1_666):
        head = queue.head(999_000)
        assert head is not None
        assert (head.priority, head.seq) == (2, 3 * n + 2)
        queue.remove(head)
    head = queue.head(1_000_000)
    assert head is not None
    assert head.seq == 0


def test_what_is_learned_of_the_pace_moves_the_time_at_which_a_request_turns_urgent() -> None:
    queue = flow("a")
    queue.room.pace = pace = Pace()
    first, urgent = entry(queue, 0, 9, 1000, 1000), entry(queue, 1, 3, 900, 800)
    queue.push(first)
    queue.push(urgent)
    assert queue.head(850) is first  # nothing is known: urgent at its deadline, 900
    pace.learn(1)
    assert queue.head(850) is urgent  # 100 tokens ahead of it at 1 ns each: urgent from 800 on
    pace.learn(100)
    assert queue.head(1) is urgent


def test_a_pace_is_expected_in_the_middle_and_careful_above() -> None:
    pace = Pace()
    assert (pace.expected, pace.careful) == (0, 0)
    for ns in [1000, 1500] * 50:
        pace.learn(ns)
    assert 1150 < pace.expected < 1350
    assert 1500 <= pace.careful < 2000


def test_what_is_cancelled_takes_its_memory_with_it() -> None:
    queue = flow("a")
    entries = [entry(queue, seq, 5, seq, seq) for seq in range(10_000)]
    for each in entries:
        queue.push(each)
    before = sys.getrefcount(entries[5_000])
    for each in entries[1:]:
        queue.remove(each)
    after = sys.getrefcount(entries[5_000])
    assert before - after == 2  # its neighbours know it no more
    assert queue.head(0) is entries[0]


def test_another_attempt_takes_its_old_place() -> None:
    queue = flow("a")
    entries = [entry(queue, seq, 5, 100 + seq, 100) for seq in range(6)]
    for each in entries:
        queue.push(each)
    for each in entries[:3]:
        queue.remove(each)
    for seq in (1, 0, 2):
        queue.push(entries[seq])
    assert [each.seq for each in queue.waiting()] == [0, 1, 2, 3, 4, 5]


def test_what_a_head_waited_for_is_told_in_order_and_only_of_its_own_time() -> None:
    queue = flow("a")
    queue.note(0, Cause.SLOTS, "m")
    queue.note(5, Cause.ELASTIC_CAP, "a")
    queue.note(5, Cause.LOAN_DUE, "b")
    queue.note(7, Cause.LOAN_DUE, "b")
    queue.note(9, Cause.SLOTS, "m")
    assert queue.waits(3, 12) == (Wait(Cause.SLOTS, "m", 2), Wait(Cause.LOAN_DUE, "b", 4), Wait(Cause.SLOTS, "m", 3))
    assert queue.waits(10, 12) == (Wait(Cause.SLOTS, "m", 2),)
    for at in range(20, 2000):
        queue.note(at, Cause.SLOTS, str(at))
    assert sum(wait.ns for wait in queue.waits(1990, 2000)) == 10
