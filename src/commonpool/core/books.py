"""The books of the parties to loans: what each has lent and borrowed, and who offers what to whom.

`lending` decides who lends. A *circle* is a firm group (`Node.firm`) or the whole pool: those in it, firm groups
included, lend to each other before anyone outside does.
"""

from heapq import heapify, heappush
from typing import Final

from commonpool.core.model import Loan
from commonpool.core.quota import Node
from commonpool.core.tree import Party

UNOWNED = ""
# What the books are about: a tenant, the part that a group owns, or a circle (a firm group, or the whole pool).
TENANT: Final = 0
OWN: Final = 1
CIRCLE: Final = 2


class Task:
    """What the books know of what runs: its name, the loans that run for it, and those that have ended, in order."""

    __slots__ = ("_last", "ended", "id", "running")

    def __init__(self, task_id: str) -> None:
        self.id = task_id
        self.running: OpenLoan | None = None  # the first; each knows the next
        self._last: OpenLoan | None = None
        self.ended: list[Loan] | None = None  # None: none has, as for most

    def begins(self, loan: "OpenLoan") -> None:
        loan.following = None
        if self._last is None:
            self.running = loan
        else:
            self._last.following = loan
        self._last = loan

    def ends(self, loan: "OpenLoan") -> None:
        before: OpenLoan | None = None
        each = self.running
        while each is not loan and each is not None:
            before, each = each, each.following
        if before is None:
            self.running = loan.following
        else:
            before.following = loan.following
        if self._last is loan:
            self._last = before

    def note(self, ended: Loan) -> None:
        if self.ended is None:
            self.ended = [ended]
        else:
            self.ended.append(ended)


class Book(Party):
    """What one of the parties has lent and borrowed. Of a firm group: across its border."""

    __slots__ = (
        "borrowed",
        "borrowings",
        "depth",
        "kind",
        "lendings",
        "lent",
        "members",
        "newest_borrowing",
        "newest_lending",
        "node",
        "offered",
        "offers",
        "oldest_borrowing",
        "outer",
    )

    def __init__(self, node: Node, kind: int, outer: "Book | None") -> None:
        self.node = node
        self.kind = kind
        self.outer = outer
        self.depth: int = outer.depth + 1 if outer else 0
        self.borrowed = 0
        self.lent = 0
        self.offered = 0  # of the largest of its offers in the circle that it is in; 0: it has none
        # The loans of a tenant, or of a part that is nobody's; each knows its neighbours.
        self.newest_lending: OpenLoan | None = None
        self.oldest_borrowing: OpenLoan | None = None
        self.newest_borrowing: OpenLoan | None = None
        # Of a circle: the loans across its border, oldest first, who is in it, and what they offer there.
        self.lendings: dict[OpenLoan, None] = {}
        self.borrowings: dict[OpenLoan, None] = {}
        self.members: list[Book] = []
        self.offers: list[Offer] = []  # a heap; may be out of date, but nobody has more to lend than it offers

    @property
    def room(self) -> int:
        """What it can lend now to the circle that it is in; below 0 when it has lent too much."""
        return self.node.guaranteed - self.node.held - self.lent


class Offer:
    """What a book offers to the circle that it is in: the largest comes first, ties by name."""

    __slots__ = ("book", "milli_gpu")

    def __init__(self, book: Book, milli_gpu: int) -> None:
        self.book = book
        self.milli_gpu = milli_gpu

    def __lt__(self, other: "Offer") -> bool:
        if self.milli_gpu != other.milli_gpu:
            return self.milli_gpu > other.milli_gpu
        mine, its = self.book, other.book
        return mine.node.name < its.node.name or (mine.node.name == its.node.name and mine.kind < its.kind)


class OpenLoan:
    """A loan that runs. Mutable: part of it may end while the rest goes on."""

    __slots__ = (
        "borrowed_after",
        "borrowed_before",
        "borrower",
        "following",
        "lender",
        "lent_after",
        "lent_before",
        "milli_gpu",
        "source",
        "start_ns",
        "taker",
        "task",
    )

    def __init__(self, source: Book, taker: Book, task: Task, milli_gpu: int, start_ns: int) -> None:
        self.lender = source.node.name
        self.borrower = taker.node.name
        self.source = source
        self.taker = taker
        self.task = task
        self.milli_gpu = milli_gpu
        self.start_ns = start_ns
        self.following: OpenLoan | None = None  # the next that runs for its task
        # Its neighbours among the loans of its two parties.
        self.lent_before: OpenLoan | None = None
        self.lent_after: OpenLoan | None = None
        self.borrowed_before: OpenLoan | None = None
        self.borrowed_after: OpenLoan | None = None

    def enter(self) -> None:
        """As the newest of its parties and of its task."""
        source, taker = self.source, self.taker
        self.lent_before, self.lent_after = source.newest_lending, None
        if source.newest_lending is not None:
            source.newest_lending.lent_after = self
        source.newest_lending = self
        self.borrowed_before, self.borrowed_after = taker.newest_borrowing, None
        if taker.newest_borrowing is None:
            taker.oldest_borrowing = self
        else:
            taker.newest_borrowing.borrowed_after = self
        taker.newest_borrowing = self
        self.task.begins(self)

    def leave(self) -> None:
        before, after = self.lent_before, self.lent_after
        if before is not None:
            before.lent_after = after
        if after is None:
            self.source.newest_lending = before
        else:
            after.lent_before = before
        before, after = self.borrowed_before, self.borrowed_after
        if before is None:
            self.taker.oldest_borrowing = after
        else:
            before.borrowed_after = after
        if after is None:
            self.taker.newest_borrowing = before
        else:
            after.borrowed_before = before
        self.task.ends(self)


class Claim:
    """What is still to be lent."""

    __slots__ = ("amount", "taker", "task")

    def __init__(self, taker: Book, task: Task, amount: int) -> None:
        self.taker = taker
        self.task = task
        self.amount = amount


def rise(book: Book) -> None:
    """It may have more to lend, and with it each circle that it is in: offer what is more than it offers already."""
    circle = book.outer
    while circle is not None:
        room = book.node.guaranteed - book.node.held - book.lent  # book.room, without the call
        if room > book.offered:
            book.offered = room
            heappush(circle.offers, Offer(book, room))
            if len(circle.offers) > 64 + 4 * len(circle.members):
                circle.offers = [Offer(each, each.offered) for each in circle.members if each.offered]
                heapify(circle.offers)
        book, circle = circle, circle.outer


def enter(book: Book) -> Book:
    if book.outer:
        book.outer.members.append(book)
        rise(book)
    return book


def own_part(name: str, amount: int, circle: Book) -> Book:
    """Books for a part that no tenant is guaranteed: nobody uses it as its own."""
    node = Node(name, circle.node.pool)
    node.guaranteed = amount
    return Book(node, OWN, circle)
