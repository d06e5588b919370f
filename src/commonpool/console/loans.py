"""Loans: who holds what of whose guarantee now, who lent to whom in a period, and what two parties had between them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.bill import BillingPeriods, LendingTable
from commonpool.api.wire.decisions import Decision, Decisions
from commonpool.api.wire.status import OpenLoans, Status
from commonpool.api.wire.usage import LoanTable
from commonpool.console import spans
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Page, View, together
from commonpool.core.ledger import PLATFORM

PARTIES_MAX = 20  # on each side of the matrix
ROWS = 50
DECISIONS_MAX = 20
BAD_REQUEST = 400
UNOWNED: Final = ""  # as a lender: the pool's part that no tenant has a guarantee for
MONTH: Final = re.compile(r"\d{4}-\d{2}")


class Sum(msgspec.Struct, frozen=True):
    """All that one lent to another: `loans` and their mean length where they are known, the cost where it is billed."""

    lender: str
    borrower: str
    gpu_seconds: Decimal
    loans: int | None = None
    length_ns_mean: int | None = None
    cost_micro: int | None = None


class Matrix(msgspec.Struct, frozen=True):
    """Lenders by borrowers, those who lent and borrowed most; `rest` is how many pairs are not in it."""

    lenders: Sequence[str]
    borrowers: Sequence[str]
    pairs: dict[tuple[str, str], Sum]
    rest: int


def matrix(sums: Iterable[Sum]) -> Matrix:
    pairs = {(each.lender, each.borrower): each for each in sums}
    lenders, borrowers = _largest(pairs, 0), _largest(pairs, 1)
    rest = sum(lender not in lenders or borrower not in borrowers for lender, borrower in pairs)
    return Matrix(lenders, borrowers, pairs, rest)


def _largest(pairs: dict[tuple[str, str], Sum], side: int) -> list[str]:
    sums: dict[str, Decimal] = {}
    for pair, each in pairs.items():
        sums[pair[side]] = sums.get(pair[side], Decimal(0)) + each.gpu_seconds
    return sorted(sums, key=lambda name: (-sums[name], name))[:PARTIES_MAX]


def between(sums: Iterable[Sum], lender: str | None, borrower: str | None) -> list[Sum]:
    """Those of these parties (None: of all)."""
    return [each for each in sums if lender in (None, each.lender) and borrower in (None, each.borrower)]


def largest(sums: Iterable[Sum]) -> list[Sum]:
    """The largest first."""
    return sorted(sums, key=lambda each: (-each.gpu_seconds, each.lender, each.borrower))


async def show(view: View) -> Response:
    lender, borrower, month = _party(view, "lender"), _party(view, "borrower"), view.query.get("period", "")
    if month and not MONTH.fullmatch(month):
        raise RefusedError(BAD_REQUEST, f"{month!r} is not a month; write it like 2026-11")
    span = spans.span(view, "7d")
    named = [name for name in (lender, borrower) if name]
    parties = {name: (party,) for name, party in (("lender", lender), ("borrower", borrower)) if party is not None}
    status, now, lent, periods, decisions = await together(
        view.wish(Permission.READ_STATUS, "/admin/v1/status", Status),
        view.wish(Permission.READ_STATUS, "/admin/v1/loans/open", OpenLoans, **parties),
        _of_month(view, month, lender, borrower) if month else _of_span(view, view.now_ns - span.length_ns, parties),
        view.wish(Permission.READ_BILLS, "/admin/v1/periods", BillingPeriods),
        view.wish(Permission.READ_STATUS, "/admin/v1/decisions", Decisions, kind="loan", tenant=named, limit=200),
    )
    sums, currency = lent if isinstance(lent, tuple) else (lent, "")
    past = sums if isinstance(sums, Problem) else spans.part(view, largest(sums), ROWS)
    return view.render(
        "loans.html",
        lender=lender,
        borrower=borrower,
        tenants=[] if isinstance(status, Problem) else [each.name for each in status.tenants],
        open=now if isinstance(now, Problem) else now.loans,
        past=past,
        matrix=None if isinstance(sums, Problem) or named or lender == UNOWNED else matrix(sums),
        currency=currency,
        month=month,
        months=[] if isinstance(periods, Problem) else [each.name for each in reversed(periods.periods)],
        span=span,
        spans=spans.SPANS,
        decisions=decisions if isinstance(decisions, Problem) else _about(decisions.decisions, named),
        address=lambda **changes: spans.address(view, page=None, **changes),
    )


def _party(view: View, name: str) -> str | None:
    """Whom the address names as a party: None for all. The unowned part has a word of its own, `-`."""
    text = view.query.get(name, "") or None
    return UNOWNED if text == "-" else text


async def _of_month(
    view: View, month: str, lender: str | None, borrower: str | None
) -> tuple[list[Sum], str] | Problem:
    """What is in the books of a month, with what was paid."""
    table = await view.wish(Permission.READ_BILLS, "/admin/v1/bill/matrix", LendingTable, period=month)
    if isinstance(table, Problem):
        return table
    pairs = [
        Sum(_name(each.lender), _name(each.borrower), each.gpu_seconds, cost_micro=each.cost_micro)
        for each in table.pairs
    ]
    return between(pairs, lender, borrower), table.currency


def _name(account: str) -> str:
    """How live loans call who a bill calls so (`core.statement.label`): what nobody owns is the platform's there."""
    return UNOWNED if account == PLATFORM else account.removeprefix("tenant:")


async def _of_span(
    view: View, since_ns: int, parties: Mapping[str, tuple[str, ...]]
) -> tuple[list[Sum], str] | Problem:
    """Loans of requests and jobs that arrived since then."""
    table = await view.wish(Permission.READ_USAGE, "/admin/v1/loans", LoanTable, since_ns=max(0, since_ns), **parties)
    if isinstance(table, Problem):
        return table
    return [
        Sum(each.lender, each.borrower, each.gpu_seconds, each.loans, each.length_ns_mean) for each in table.loans
    ], ""


def _about(decisions: Iterable[Decision], named: Sequence[str]) -> list[Decision]:
    return [each for each in decisions if set(named) <= set(each.tenants)][:DECISIONS_MAX]


PAGES = (
    Page(
        "/loans",
        "loans",
        show,
        needs=(Permission.READ_STATUS, Permission.READ_USAGE),
        group="work",
        key="l",
        shared=True,
    ),
)
