"""Loans: whose idle guarantee each borrowed milli_gpu is, from when to when, and why it came back.

A tenant's use above its guarantee is borrowed. The books hold three laws after every call:

- what a tenant has borrowed is at most its use above its guarantee, and exactly that unless its guarantee was cut while
  it ran (what it holds then is over quota, which is not a loan);
- what a tenant has lent is at most its idle guarantee beyond its reservation;
- the sum of what is borrowed is the sum of what is lent, the pool's unowned part (lender "") included.

A loan belongs to the request that caused it. It ends with that request, or earlier when the borrower no longer needs
it, or is taken over by another lender when its lender comes back. Nothing that runs is ever interrupted.
"""

import heapq
from typing import Protocol

from commonpool.core.model import Loan, LoanEnd
from commonpool.core.quota import Node, Quota

UNOWNED = ""


class Task(Protocol):
    """What the books need of a running request: its name, and where its ended loans are kept for its record."""

    @property
    def id(self) -> str: ...
    @property
    def ended_loans(self) -> list[Loan]: ...


class OpenLoan:
    """A loan that runs. Mutable: part of it may end while the rest goes on."""

    __slots__ = ("borrower", "lender", "milli_gpu", "start_ns", "task")

    def __init__(self, lender: str, borrower: str, task: Task, milli_gpu: int, start_ns: int) -> None:
        self.lender = lender
        self.borrower = borrower
        self.task = task
        self.milli_gpu = milli_gpu
        self.start_ns = start_ns


class Loans:
    """The loan books of one pool."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._by_task: dict[str, list[OpenLoan]] = {}
        self._by_borrower: dict[str, dict[OpenLoan, None]] = {}  # oldest first
        self._by_lender: dict[str, dict[OpenLoan, None]] = {}
        self._borrowed: dict[str, int] = {}
        self._lent: dict[str, int] = {}
        self._offers: list[tuple[int, str]] = []  # (-idle, tenant), may be out of date
        self._changed: dict[str, Node] = {}  # whose idle guarantee changed since the offers were last looked at

    def borrowed(self, tenant: str) -> int:
        return self._borrowed.get(tenant, 0)

    def lent(self, tenant: str) -> int:
        return self._lent.get(tenant, 0)

    def open_loans(self) -> list[OpenLoan]:
        return [loan for loans in self._by_borrower.values() for loan in loans]

    def took(self, node: Node, task: Task, amount: int, now: int) -> None:
        """`node` has just taken `amount` for `task`: lend it what is above its guarantee, and let it come back."""
        self._changed[node.name] = node
        if node.name in self._by_lender:
            self._reclaim(node, now)
        above = node.use - node.guaranteed
        if above > 0:
            self._lend(node.name, task, min(above, amount), now)

    def gave(self, node: Node, task: Task, now: int) -> None:
        """`node` has just given back what `task` used: its loans end, and those that are no longer needed too."""
        self._changed[node.name] = node
        if node.name in self._by_borrower:
            for loan in tuple(self._by_task.get(task.id, ())):
                self._end(loan, loan.milli_gpu, LoanEnd.TASK_DONE, now)
            self._cover(node, now)

    def reconfigured(self, now: int) -> None:
        """Guarantees changed: end what is covered now, and move what its lender can no longer lend."""
        self._offers = []
        for node in self._quota.tenants.values():
            self._cover(node, now)
            self._changed[node.name] = node
        for name in list(self._by_lender):
            node = self._quota.tenants.get(name) or Node(name, self._quota.pool)
            if name != UNOWNED:
                self._reclaim(node, now)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _cover(self, node: Node, now: int) -> None:
        """End the oldest loans of a borrower that its own guarantee covers again."""
        excess = self.borrowed(node.name) - node.over_guarantee
        while excess > 0:
            loan = next(iter(self._by_borrower[node.name]))
            part = min(excess, loan.milli_gpu)
            self._end(loan, part, LoanEnd.COVERED, now)
            excess -= part

    def _reclaim(self, node: Node, now: int) -> None:
        """The lender needs its guarantee: move the newest of what it lent too much to whoever can lend it now."""
        excess = self.lent(node.name) - node.lendable
        while excess > 0:
            loan = next(reversed(self._by_lender[node.name]))
            part = min(excess, loan.milli_gpu)
            self._end(loan, part, LoanEnd.REPLACED, now)
            self._lend(loan.borrower, loan.task, part, now)
            excess -= part

    def _lend(self, borrower: str, task: Task, amount: int, now: int) -> None:
        """Find lenders: the largest idle guarantee first, ties by name, then the pool's unowned part."""
        self._refresh()
        offers = self._offers
        while amount and offers:
            key, name = offers[0]
            node = self._quota.tenants.get(name)
            idle = node.lendable - self.lent(name) if node else 0
            if idle <= 0 or name == borrower:
                heapq.heappop(offers)
            elif idle != -key:
                heapq.heapreplace(offers, (-idle, name))
            else:
                part = min(amount, idle)
                self._open(OpenLoan(name, borrower, task, part, now))
                amount -= part
        if amount:
            self._open(OpenLoan(UNOWNED, borrower, task, amount, now))

    def _refresh(self) -> None:
        """Bring the offers up to date: at least one of each tenant's is right, the wrong ones are seen through."""
        for name, node in self._changed.items():
            idle = node.lendable - self.lent(name)
            if idle > 0:
                heapq.heappush(self._offers, (-idle, name))
        self._changed.clear()
        if len(self._offers) > 64 + 4 * len(self._quota.tenants):
            current = {name: node.lendable - self.lent(name) for name, node in self._quota.tenants.items()}
            self._offers = [(-idle, name) for name, idle in current.items() if idle > 0]
            heapq.heapify(self._offers)

    def _open(self, loan: OpenLoan) -> None:
        self._by_task.setdefault(loan.task.id, []).append(loan)
        self._by_borrower.setdefault(loan.borrower, {})[loan] = None
        self._by_lender.setdefault(loan.lender, {})[loan] = None
        self._borrowed[loan.borrower] = self.borrowed(loan.borrower) + loan.milli_gpu
        self._lent[loan.lender] = self.lent(loan.lender) + loan.milli_gpu

    def _end(self, loan: OpenLoan, part: int, reason: LoanEnd, now: int) -> None:
        """End `part` of a loan: it becomes a closed entry of its request; the rest of the loan goes on."""
        loan.task.ended_loans.append(
            Loan(loan.lender, loan.borrower, loan.task.id, part, loan.start_ns, now, reason),
        )
        loan.milli_gpu -= part
        self._borrowed[loan.borrower] -= part
        self._lent[loan.lender] -= part
        if not loan.milli_gpu:
            own = self._by_task[loan.task.id]
            own.remove(loan)
            if not own:
                del self._by_task[loan.task.id]
            for books, key in ((self._by_borrower, loan.borrower), (self._by_lender, loan.lender)):
                del books[key][loan]
                if not books[key]:
                    del books[key]
        lender = self._quota.tenants.get(loan.lender)
        if lender:
            self._changed[loan.lender] = lender
