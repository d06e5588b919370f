"""Who is next among the flows of one line."""

from commonpool.core.line import Line
from commonpool.core.queueing import COUNTER_SCALE, Flow
from tests.core.flows import Where, entry, flow


def fill(line: Line, queue: Flow, count: int = 1) -> None:
    line.flows[queue.tenant] = queue
    for seq in range(count):
        queue.push(entry(queue, seq, 5, 1_000_000, 1_000_000))
    line.place(queue)


def winner(line: Line) -> str:
    found = line.next_beyond(0, Where())
    assert found is not None
    return found[0].flow.tenant


def test_under_guarantee_by_the_smallest_share_then_the_contest_by_counter_first_come_first() -> None:
    line = Line()
    for each in (flow("a", use=300, guaranteed=400), flow("b", use=200, guaranteed=400), flow("c"), flow("d")):
        fill(line, each)
    order = []
    for choose in (line.next_within, line.next_beyond):
        while (found := choose(0, Where())) is not None:
            order.append((found[0].flow.tenant, choose == line.next_beyond))
            found[0].flow.remove(found[0])
            line.place(found[0].flow)
    assert order == [("b", False), ("a", False), ("c", True), ("d", True)]


def test_who_enters_is_lifted_to_the_smallest_counter_and_into_an_empty_contest_to_the_last_that_left() -> None:
    line = Line()
    a, b, c = flow("a"), flow("b"), flow("c")
    fill(line, a)
    a.charge(100)
    line.place(a)
    fill(line, b)
    assert b.counter == a.counter == 100 * COUNTER_SCALE
    for queue in (b, a):  # a leaves last
        queue.charge(5)
        queue.remove(queue.earliest())
        line.place(queue)
    fill(line, c)
    assert c.counter == a.counter == 105 * COUNTER_SCALE


def test_what_does_not_fit_is_passed_and_keeps_its_place() -> None:
    line = Line()
    a, b = flow("a"), flow("b")
    fill(line, a)
    fill(line, b)
    found = line.next_beyond(0, Where("b"))
    assert found is not None
    assert found[0].flow is b
    assert winner(line) == "a"


def test_places_that_are_out_of_date_do_not_pile_up() -> None:
    line = Line()
    queue = flow("a")
    fill(line, queue)
    for _ in range(10_000):
        line.place(queue)
    assert len(line._contest) < 100
    assert len(line._overdue) < 100


def test_a_flow_that_came_to_the_front_with_an_old_counter_goes_where_its_counter_is_now() -> None:
    line = Line()
    flows = [flow(name) for name in "abc"]
    for each in flows:
        fill(line, each, 100)
    order = ""
    for service in (5, 3, 4, 1, 1, 1):
        found = line.next_beyond(0, Where())
        assert found is not None
        flow_ = found[0].flow
        order += flow_.tenant
        flow_.remove(found[0])
        flow_.charge(service)
        line.place(flow_)
    assert order == "abcbcb"  # by 0 0 0, then 5 3 4, 5 4 4, 5 4 5
    flows[2].charge(-1)  # less was used than was charged in advance
    line.place(flows[2])
    assert winner(line) == "c"


def test_who_is_overdue_is_found_though_its_deadline_has_moved() -> None:
    line = Line()
    a, b = flow("a"), flow("b")
    fill(line, a)
    fill(line, b)
    a.push(entry(a, 1, 5, 1_000_001, 1_000_001))
    a.remove(a.earliest())
    line.place(a)
    assert line.most_overdue(999_999) is None
    assert line.most_overdue(1_000_000) is b
    b.remove(b.earliest())
    line.place(b)
    assert line.most_overdue(1_000_000) is None
    assert line.most_overdue(1_000_001) is a
