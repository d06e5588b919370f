"""Usage records to test with."""

from typing import Any

import msgspec

from commonpool.core.model import Loan, LoanEnd, Outcome, TokenSource, UsageRecord

DAY = 86_400 * 10**9
T0 = 19_723 * DAY  # 2024-01-01T00:00Z

_BASE = UsageRecord(
    request_id="r1",
    attempt=1,
    tenant="a",
    app="chat",
    cost_center="cc-1",
    model="m",
    version="1",
    tier="interactive",
    endpoint="chat",
    stream=True,
    pool="main",
    replica="m-0",
    outcome=Outcome.COMPLETED,
    status=200,
    reason="",
    arrived_ns=T0,
    wait_ns=5,
    first_token_ns=10,
    total_ns=25,
    run_ns=20,
    tokens_in=100,
    tokens_cached=40,
    tokens_out=30,
    token_source=TokenSource.ENGINE,
    milli_gpu=250,
    milli_gpu_ns=5000,
    micro_per_gpu_hour=2_000_000,
)


def usage_record(request_id: str = "r1", **changes: Any) -> UsageRecord:
    """A completed request of tenant a, with these fields changed."""
    return msgspec.structs.replace(_BASE, request_id=request_id, **changes)


def refused(request_id: str, **changes: Any) -> UsageRecord:
    """A request that was never dispatched."""
    nothing = dict.fromkeys(("attempt", "wait_ns", "run_ns", "tokens_out", "milli_gpu", "milli_gpu_ns"), 0)
    return usage_record(request_id, **nothing, replica="", outcome=Outcome.REFUSED, status=429, **changes)


def loan(lender: str, borrower: str = "a", milli_gpu: int = 250, length_ns: int = 20, start_ns: int = T0) -> Loan:
    """A loan that ended with its task."""
    return Loan(lender, borrower, "r1", milli_gpu, start_ns, start_ns + length_ns, LoanEnd.TASK_DONE)
