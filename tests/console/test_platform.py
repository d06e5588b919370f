"""Given what lies where and who lent to whom, when the platform's page is opened, then it says what to do about it."""

from decimal import Decimal

from commonpool.api.wire.bill import LentLine
from commonpool.api.wire.nodes import Nodes
from commonpool.console import platform
from commonpool.core.pictures import DeviceView, NodeView
from tests.api.fakes import LOAN, FakeOperations
from tests.console.visitor import visiting, words


def lent(lender: str, borrower: str, seconds: int) -> LentLine:
    return LentLine(lender, borrower, Decimal(seconds), seconds)


def node(name: str, *free: int) -> NodeView:
    devices = tuple(
        DeviceView(f"{name}/{at}", "A100", "", "", True, 1000, left, 0, None, ()) for at, left in enumerate(free)
    )
    return NodeView(name, "main", "shared", (), "", 0, 0, None, None, devices)


def test_the_matrix_has_loans_of_the_books_and_of_now() -> None:
    made = platform.matrix([lent("a", "b", 3600)], [LOAN])
    assert (set(made.lenders), set(made.borrowers), made.rest) == ({"a", "support"}, {"b", "research"}, 0)
    assert made.now == {("support", "research"): 1500}


def test_a_matrix_of_many_has_the_largest_and_says_how_many_are_left_out() -> None:
    many = [lent(f"l{number:02}", "b", 1 + number) for number in range(platform.MATRIX_MAX + 3)]
    made = platform.matrix(many, [])
    assert made.lenders[0] == f"l{platform.MATRIX_MAX + 2:02}"
    assert (len(made.lenders), made.rest) == (platform.MATRIX_MAX, 3)


def test_nodes_with_most_in_pieces_come_first_and_little_use_is_seen() -> None:
    rows = platform.rows(Nodes((), (node("whole", 1000, 0), node("pieces", 999, 400), node("more", 500, 500))))
    assert [row.node.name for row in rows] == ["pieces", "more", "whole"]
    assert [[cell.eighths for cell in row.cells] for row in rows] == [[1, 5], [4, 4], [0, 8]]


def test_the_page_is_the_platforms_alone() -> None:
    product = FakeOperations()
    with visiting(product) as local:
        page = words(local.get("/platform").text)
        assert "Who lends to whom" in page
        assert "Platform" in page
