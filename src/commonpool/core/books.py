"""The books of the parties to loans: what each has lent and borrowed, and who offers what to whom.

`lending` decides who lends. A *circle* is a firm group (`Node.firm`) or the whole pool: those in it, firm groups
included, lend to each other before anyone outside does.
"""

import heapq
from typing import Final, Protocol

from commonpool.core.model import Loan
from commonpool.core.quota import Node

UNOWNED = ""
# What the books are about: a tenant, the part that a group owns, or a circle (a firm group, or the whole pool).
TENANT: Final = 0
OWN: Final = 1
CIRCLE: Final = 2


class Task(Protocol):
    """What the books need of what runs: its name, and where its ended loans are kept for its record."""

    @property
    def id(self) -> str: ...
    @property
    def ended_loans(self) -> list[Loan]: ...


class Book:
    """What one of the parties has lent and borrowed. Of a firm group: across its border."""

    __slots__ = (
        "borrowed",
        "borrowings",
        "depth",
        "kind",
        "lendings",
        "lent",
        "members",
        "node",
        "offers",
        "outer",
        "risen",
    )

    def __init__(self, node: Node, kind: int, outer: "Book | None") -> None:
        self.node = node
        self.kind = kind
        self.outer = outer
        self.depth: int = outer.depth + 1 if outer else 0
        self.borrowed = 0
        self.lent = 0
        self.borrowings: dict[OpenLoan, None] = {}  # oldest first
        self.lendings: dict[OpenLoan, None] = {}  # oldest first
        # Of a circle: who is in it, and what they offer there.
        self.members: list[Book] = []
        self.offers: list[Offer] = []  # a heap, may be out of date, but never offers less than there is
        self.risen: dict[Book, None] = {}  # those with more to lend since the offers were last looked at

    @property
    def room(self) -> int:
        """What it can lend now to the circle that it is in; below 0 when it has lent too much."""
        return self.node.guaranteed - self.node.held - self.lent


# Largest first, ties by name: what is there to lend with its sign changed, name, kind, whose.
Offer = tuple[int, str, int, Book]


class OpenLoan:
    """A loan that runs. Mutable: part of it may end while the rest goes on."""

    __slots__ = ("borrower", "lender", "milli_gpu", "source", "start_ns", "taker", "task")

    def __init__(self, source: Book, taker: Book, task: Task, milli_gpu: int, start_ns: int) -> None:
        self.lender = source.node.name
        self.borrower = taker.node.name
        self.source = source
        self.taker = taker
        self.task = task
        self.milli_gpu = milli_gpu
        self.start_ns = start_ns


class Claim:
    """What is still to be lent."""

    __slots__ = ("amount", "taker", "task")

    def __init__(self, taker: Book, task: Task, amount: int) -> None:
        self.taker = taker
        self.task = task
        self.amount = amount


def refresh(circle: Book) -> None:
    """Bring the offers up to date: none is too small now; those that are too large are seen through."""
    for book in circle.risen:
        room = book.room
        if room > 0:
            heapq.heappush(circle.offers, (-room, book.node.name, book.kind, book))
    circle.risen.clear()
    if len(circle.offers) > 64 + 4 * len(circle.members):
        circle.offers = [(-book.room, book.node.name, book.kind, book) for book in circle.members if book.room > 0]
        heapq.heapify(circle.offers)


def enter(book: Book) -> Book:
    if book.outer:
        book.outer.members.append(book)
        book.outer.risen[book] = None
    return book


def own_part(name: str, amount: int, circle: Book) -> Book:
    """Books for a part that no tenant is guaranteed: nobody uses it as its own."""
    node = Node(name, circle.node.pool)
    node.guaranteed = amount
    return Book(node, OWN, circle)
