"""Loans: whose idle guarantee each borrowed milli_gpu is, from when to when, and why it came back.

A tenant's use above its guarantee is borrowed. The books hold these laws after every call:

- what a tenant has borrowed is at most its use above its guarantee, and exactly that unless its guarantee was cut while
  it ran (what it holds then is over quota, which is not a loan);
- what a tenant has lent is at most the part of its guarantee that it neither uses nor keeps, and what is lent of the
  part that a group owns beyond its members is at most that part;
- the sum of what is borrowed is the sum of what is lent, the pool's unowned part (lender "") included. That part alone
  may lend more than it has: after a cut, as long as the tree has less than nothing free.

A group that owns or reserves more than its members do (`Node.firm`) is to those outside it like one tenant: what it
lets out is at most the part of its guarantee that nobody in it uses or keeps, and what its members have borrowed
outside is at most what they use beyond it all. So loans are made at home first, and one made outside comes home as soon
as the group can cover it.

A loan belongs to the request or job that caused it. It ends with that, or earlier when the borrower no longer needs it,
or is taken over by another lender when its lender comes back. Nothing that runs is ever interrupted.
"""

from collections.abc import Mapping
from heapq import heappop, heapreplace
from typing import Final, cast

from commonpool.core.books import CIRCLE, OWN, TENANT, UNOWNED, Book, Claim, OpenLoan, Task, enter, own_part, rise
from commonpool.core.forecast import Forecast
from commonpool.core.model import Loan, LoanEnd
from commonpool.core.quota import Node, Quota

__all__ = ["UNOWNED", "Loans", "OpenLoan", "Task"]

_TASK_DONE: Final = LoanEnd.TASK_DONE
_COVERED: Final = LoanEnd.COVERED


class Loans:
    """The loan books of one pool. The quota tree has changed already when they are told."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._topped_up = quota.topped_up
        self._overdrawn = False
        self._pool = Book(Node("", quota.pool), CIRCLE, None)
        self._unowned = Book(Node(UNOWNED, quota.pool), OWN, self._pool)
        self._tenants: dict[Node, Book] = {}
        self._circles: dict[Node, Book] = {}
        self._owned: dict[str, Book] = {}  # the groups' own parts
        self._open_books()

    def borrowed(self, tenant: str) -> int:
        """What a tenant has borrowed, in milli_gpu."""
        node = self._quota.tenants.get(tenant)
        return self._tenants[node].borrowed if node else 0

    def lent(self, tenant: str) -> int:
        """What a tenant has lent, in milli_gpu; of "" what is lent of the pool's unowned part."""
        node = self._quota.tenants.get(tenant)
        return self._tenants[node].lent if node else self._unowned.lent if tenant == UNOWNED else 0

    def lent_by_group(self, group: str) -> int:
        """What is lent of the part that a group owns beyond its members, in milli_gpu."""
        book = self._owned.get(group)
        return book.lent if book else 0

    def newest_borrower(self, lender: str) -> str:
        """Who borrowed from a tenant last, "" when nobody has."""
        node = self._quota.tenants.get(lender)
        newest = self._tenants[node].newest_lending if node else None
        return newest.borrower if newest else ""

    def open_loans(self) -> list[OpenLoan]:
        """Those that run, by borrower, oldest first."""
        found = []
        for book in self._tenants.values():
            loan = book.oldest_borrowing
            while loan is not None:
                found.append(loan)
                loan = loan.borrowed_after
        return found

    def pairs(self) -> dict[tuple[str, str], int]:
        """What each borrower has of each lender, in milli_gpu: (lender, borrower), without those that have nothing."""
        found: dict[tuple[str, str], int] = {}
        for book in self._tenants.values():
            loan = book.oldest_borrowing
            while loan is not None:
                pair = loan.lender, loan.borrower
                found[pair] = found.get(pair, 0) + loan.milli_gpu
                loan = loan.borrowed_after
        return found

    def took(self, node: Node, task: Task, amount: int, now: int) -> None:
        """`node` has just taken `amount` for `task`: lend it what is above its guarantee, and let it come back."""
        book = cast("Book", node.party)
        if book.lent or book.depth > 1 or self._topped_up:
            self._lend(self._call_in(book, now), now)
        above = node.use - node.guaranteed
        if above > 0:
            self._borrow(book, task, min(above, amount), now)

    def gave(self, node: Node, task: Task, now: int) -> None:
        """`node` has just given back what `task` used: its loans end, and those that are no longer needed too."""
        book = cast("Book", node.party)
        rise(book)
        if book.borrowed:
            while task.running is not None:
                self._end(task.running, task.running.milli_gpu, _TASK_DONE, now)
            self._cover(book, now)
        if book.depth > 1 or self._topped_up:
            self._lend(self._call_in(book, now), now)
        if self._overdrawn:
            self._relieve(now)

    def reconfigured(self, now: int) -> None:
        """The tree has changed: end what is covered now, and move what its lender can no longer lend."""
        gone = self._open_books()
        claims: list[Claim] = []
        for book in self._tenants.values():
            self._cover(book, now)
        for book in (*gone, *self._tenants.values(), *self._owned.values(), *self._circles.values()):
            self._release(book, claims, now)
        self._lend(claims, now)
        self._relieve(now)

    def long_lendable(self, borrower: Node, now: int, horizon_ns: int, forecasts: Mapping[str, Forecast]) -> int:
        """How much more than its guarantee a tenant may take for `horizon_ns`, in milli_gpu, by what is expected.

        A lender is counted with what it neither uses, keeps nor will probably want by then; one without a forecast with
        what it neither uses nor keeps. What is idle of the groups' own parts and of nobody's counts whole.
        """
        branch = set[Book]()
        outer: Book | None = self._tenants[borrower]
        while outer is not None:
            branch.add(outer)
            outer = outer.outer

        def lendable(circle: Book) -> int:
            total = 0
            for book in circle.members:
                if book.kind == CIRCLE:
                    inside = lendable(book)
                    total += inside if book in branch else max(0, min(inside, book.room))
                elif book.kind == OWN:
                    total += max(0, book.room)
                elif book not in branch:
                    forecast = forecasts.get(book.node.name)
                    wanted = (forecast.quantile(now, horizon_ns) if forecast else None) or 0
                    total += max(0, book.node.guaranteed - max(book.node.held, wanted) - book.lent)
            return total

        return lendable(self._pool) + max(0, self._unowned.room)

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _cover(self, book: Book, now: int) -> None:
        """End the oldest loans of a borrower that its own guarantee covers again."""
        excess = book.borrowed - book.node.over_guarantee
        while excess > 0 and book.oldest_borrowing is not None:
            loan = book.oldest_borrowing
            part = min(excess, loan.milli_gpu)
            self._end(loan, part, _COVERED, now)
            excess -= part

    def _call_in(self, book: Book, now: int) -> list[Claim]:
        """What this tenant holds has changed, and what those hold for whom more is kept now.

        On the whole path of each, end the loans that may no longer be there.
        """
        claims: list[Claim] = []
        changed = [book]
        if self._topped_up:
            known = (self._tenants.get(node) or self._circles.get(node) for node in self._topped_up)
            changed += [each for each in known if each]
            self._topped_up.clear()
        for each in changed:
            step: Book | None = each
            while step is not None and step.outer is not None:
                self._release(step, claims, now)
                step = step.outer
        return claims

    def _release(self, book: Book, claims: list[Claim], now: int) -> None:
        """End the newest loans that a party can no longer lend, and the oldest that a group can cover at home.

        Another lender has to be found for each. All are ended before any is lent anew: only then is there room for all.
        """
        excess = min(book.lent, -book.room)
        while excess > 0:
            newest = next(reversed(book.lendings)) if book.kind == CIRCLE else book.newest_lending
            excess -= self._replace(cast("OpenLoan", newest), excess, claims, now)
        if book.kind == CIRCLE:
            excess = book.borrowed - max(0, book.node.held - book.node.guaranteed)
            while excess > 0:
                excess -= self._replace(next(iter(book.borrowings)), excess, claims, now)

    def _replace(self, loan: OpenLoan, most: int, claims: list[Claim], now: int) -> int:
        part = min(most, loan.milli_gpu)
        self._end(loan, part, LoanEnd.REPLACED, now)
        claims.append(Claim(loan.taker, loan.task, part))
        return part

    def _relieve(self, now: int) -> None:
        """Let others take over what the unowned part has lent beyond what it has, as far as they can."""
        self._overdrawn = self._unowned.room < 0
        while self._overdrawn:
            loan = cast("OpenLoan", self._unowned.newest_lending)
            found = self._find(loan.taker, loan.task, min(-self._unowned.room, loan.milli_gpu), now)
            if not found:
                return
            self._end(loan, found, LoanEnd.REPLACED, now)
            self._overdrawn = self._unowned.room < 0

    # -- what is lent -------------------------------------------------------------------------------------------------

    def _lend(self, claims: list[Claim], now: int) -> None:
        """Find lenders for all of it; the pool's unowned part comes last."""
        for claim in claims:
            self._borrow(claim.taker, claim.task, claim.amount, now)

    def _borrow(self, taker: Book, task: Task, amount: int, now: int) -> None:
        left = amount - self._find(taker, task, amount, now)
        if left:
            self._open(OpenLoan(self._unowned, taker, task, left, now))
            self._overdrawn = self._unowned.room < 0

    def _find(self, taker: Book, task: Task, amount: int, now: int) -> int:
        """Lend from tenants and groups, in the lowest circle first. Returns how much was found."""
        found = 0
        circle = taker.outer
        while circle is not None and found < amount:
            found += self._draw(circle, taker, task, amount - found, now)
            circle = circle.outer
        return found

    def _draw(self, circle: Book, taker: Book, task: Task, amount: int, now: int) -> int:
        """Lend up to `amount` out of a circle: the one with most to lend first, ties by name. Returns how much."""
        offers = circle.offers
        left = amount
        while left and offers:
            offer = offers[0]
            book = offer.book
            room = book.node.guaranteed - book.node.held - book.lent  # book.room, without the call
            if offer.milli_gpu != book.offered:
                heappop(offers)  # it has a larger one
            elif room <= 0:
                heappop(offers)
                book.offered = 0
            elif room != offer.milli_gpu:
                book.offered = offer.milli_gpu = room
                heapreplace(offers, offer)
            elif book.kind != CIRCLE:
                part = min(left, room)
                self._open(OpenLoan(book, taker, task, part, now))
                left -= part
            elif part := self._draw(book, taker, task, min(left, room), now):
                left -= part
            else:
                heappop(offers)
                book.offered = 0
        return amount - left

    # -- the books ----------------------------------------------------------------------------------------------------

    def _open_books(self) -> list[Book]:
        """New books for the tree as it is, with the loans that run. Returns those of lenders that are gone from it."""
        quota = self._quota
        loans = sorted(self.open_loans(), key=lambda loan: loan.start_ns)
        self._pool = Book(Node("", quota.pool), CIRCLE, None)
        self._unowned = own_part(UNOWNED, quota.unowned, self._pool)
        self._circles, self._owned = {}, {}
        for name, node in reversed(quota.groups.items()):
            if node.firm:
                self._circles[node] = circle = enter(Book(node, CIRCLE, self._circle_above(node)))
                self._owned[name] = enter(own_part(name, node.own, circle))
        self._tenants = {node: enter(Book(node, TENANT, self._circle_above(node))) for node in quota.tenants.values()}
        for node, book in self._tenants.items():
            node.party = book
        gone: dict[Book, Book] = {}
        for loan in loans:
            loan.task.ends(loan)
        for loan in loans:
            source = loan.source
            if source.kind == TENANT:
                known = self._tenants.get(source.node)
            else:
                known = self._owned.get(loan.lender) if loan.lender else self._unowned
            if known is None:
                known = gone.setdefault(source, own_part(loan.lender, 0, self._pool))
            loan.source, loan.taker = known, self._tenants[loan.taker.node]
            self._open(loan)
        return list(gone.values())

    def _circle_above(self, node: Node) -> Book:
        group = node.parent
        while group is not None:
            if group.firm:
                return self._circles[group]
            group = group.parent
        return self._pool

    def _open(self, loan: OpenLoan) -> None:
        source, taker = loan.source, loan.taker
        source.lent += loan.milli_gpu
        taker.borrowed += loan.milli_gpu
        loan.enter()
        if source.outer is not taker.outer:
            self._cross(loan, loan.milli_gpu)

    def _end(self, loan: OpenLoan, part: int, reason: LoanEnd, now: int) -> None:
        """End `part` of a loan: it becomes a closed entry of its task; the rest of the loan goes on."""
        source, taker, task = loan.source, loan.taker, loan.task
        task.note(Loan(loan.lender, loan.borrower, task.id, part, loan.start_ns, now, reason))
        loan.milli_gpu -= part
        source.lent -= part
        taker.borrowed -= part
        if not loan.milli_gpu:
            loan.leave()
        if source.outer is not taker.outer:
            self._cross(loan, -part)
        if source is not self._unowned:  # that comes last, and offers nothing before
            rise(source)

    def _cross(self, loan: OpenLoan, change: int) -> None:
        """Enter a change of a loan with each firm group whose border it crosses: first outwards, then inwards."""
        giving, taking = loan.source.outer, loan.taker.outer
        while giving is not taking and giving is not None and taking is not None:
            if giving.depth >= taking.depth:
                giving.lent += change
                loans, giving = giving.lendings, giving.outer
            else:
                taking.borrowed += change
                loans, taking = taking.borrowings, taking.outer
            if loan.milli_gpu:
                loans[loan] = None
            else:
                del loans[loan]
