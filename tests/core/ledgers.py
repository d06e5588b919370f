"""Small books for the tests of settling, closing and billing."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from commonpool.core.ledger import Hour, Posting, Rates, Standing, Use, Work
from commonpool.core.model import NS_PER_HOUR, Loan, LoanEnd, Outcome, TokenSource, UsageRecord

H = NS_PER_HOUR
RATES = Rates(3_000_000, 2_000_000)
POOL = "pool:main"


def record(request_id: str = "r1", began: int = 0, run: int = H, **more: Any) -> UsageRecord:
    """An attempt of tenant a that used a whole GPU of pool main from `began` on, and was waited for a second."""
    milli_gpu = more.get("milli_gpu", 1000)
    fields: dict[str, Any] = {
        "request_id": request_id,
        "attempt": 1,
        "tenant": "a",
        "app": "app",
        "cost_center": "",
        "model": "m",
        "version": "1",
        "tier": "interactive",
        "endpoint": "chat",
        "stream": False,
        "pool": "main",
        "replica": "m-0",
        "outcome": Outcome.COMPLETED,
        "status": 200,
        "reason": "",
        "arrived_ns": began - 1_000_000_000,
        "wait_ns": 1_000_000_000,
        "first_token_ns": 0,
        "total_ns": 1_000_000_000 + run,
        "run_ns": run,
        "tokens_in": 0,
        "tokens_cached": 0,
        "tokens_out": 0,
        "token_source": TokenSource.ENGINE,
        "milli_gpu": milli_gpu,
        "milli_gpu_ns": milli_gpu * run,
        "micro_per_gpu_hour": 3_000_000,
    }
    return UsageRecord(**(fields | more))


def loan(lender: str, milli_gpu: int, start: int, end: int, borrower: str = "a") -> Loan:
    return Loan(lender, borrower, "r1", milli_gpu, start, end, LoanEnd.TASK_DONE)


def use(tenant: str, milli_gpu_ns: int, charged: bool = True, **borrowed: int) -> Use:
    """Lender "nobody" stands for the pool's unowned part."""
    lenders = {"" if name == "nobody" else name: quantity for name, quantity in borrowed.items()}
    return Use(Work(tenant), charged, milli_gpu_ns, lenders)


def hour(*standings: Standing, **more: Any) -> Hour:
    fields: dict[str, Any] = {"pool": "main", "start_ns": 0, "rates": RATES, "standings": standings}
    return Hour(**(fields | more))


def standing(milli_gpu: int = 4000, start: int = 0, end: int = H, **guaranteed: int) -> Standing:
    """What is guaranteed to tenants; a name that begins with group_ is a group's."""
    accounts = {
        f"group:{name.removeprefix('group_')}" if name.startswith("group_") else f"tenant:{name}": amount
        for name, amount in guaranteed.items()
    }
    return Standing("main", start, end, milli_gpu, accounts)


def lines(postings: Iterable[Posting]) -> dict[tuple[str, str, str], int]:
    """GPU-hour quantities in GPU hours of a thousand, by kind, debit and credit; whole ones only."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for posting in postings:
        sums[posting.kind.value, posting.debit, posting.credit] += posting.quantity
    assert not any(quantity % H for quantity in sums.values())
    return {key: quantity // H for key, quantity in sums.items() if quantity}


def balances(postings: Iterable[Posting]) -> dict[str, int]:
    """Credits less debits of each account, exact."""
    sums: Counter[str] = Counter()
    for posting in postings:
        sums[posting.debit] -= posting.exact_cost
        sums[posting.credit] += posting.exact_cost
    return {account: balance for account, balance in sums.items() if balance}
