"""Attempts, notes and postings to test the ledger with."""

from typing import Any

import msgspec

from commonpool.core.ledger import GPU_HOUR, Kind, Late, Posting, Rates, Standing, Use
from commonpool.core.model import NS_PER_HOUR as HOUR
from commonpool.core.model import NS_PER_S, Loan, LoanEnd, Outcome, UsageRecord
from commonpool.core.settling import work_of
from commonpool.store.contract import Store
from commonpool.store.hour import began
from commonpool.store.ledger import Closing, HourWork, Reconciliation
from tests.store.records import T0, usage_record

MIN = 60 * NS_PER_S
RATES = Rates(2_000_000, 1_000_000, {"request": 3})
NOTHING = Reconciliation("main", T0, 0, 0, RATES, 0, 0, {})
WORK = work_of(usage_record())
STANDING = Standing("main", T0, T0 + HOUR, 8000, {"tenant:a": 4000, "group:g": 1000})


def ran(request_id: str, start: int, length: int, **changes: Any) -> UsageRecord:
    """An attempt that ran from `start` ns after T0 for `length` ns on a quarter of a GPU; it waited a second before."""
    milli_gpu = changes.get("milli_gpu", 250)
    times = {
        "arrived_ns": T0 + start - NS_PER_S,
        "wait_ns": NS_PER_S,
        "total_ns": NS_PER_S + length,
        "run_ns": length,
        "milli_gpu": milli_gpu,
        "milli_gpu_ns": milli_gpu * length,
    }
    return usage_record(request_id, **{**times, **changes})


def noted(record: UsageRecord, until: int) -> UsageRecord:
    """What is noted of it while it runs, at `until` ns after T0."""
    length = T0 + until - began(record)
    loans = tuple(
        msgspec.structs.replace(loan, end_ns=min(loan.end_ns, T0 + until), reason=LoanEnd.RUNNING)
        for loan in record.loans
        if loan.start_ns < T0 + until
    )
    return msgspec.structs.replace(
        record,
        outcome=Outcome.RUNNING,
        total_ns=record.wait_ns + length,
        run_ns=length,
        milli_gpu_ns=record.milli_gpu * length,
        micro_per_gpu_hour=2_000_000,
        loans=loans,
    )


def lent(lender: str, start: int, length: int, milli_gpu: int = 100) -> Loan:
    return Loan(lender, "a", "r", milli_gpu, T0 + start, T0 + start + length, LoanEnd.TASK_DONE)


def use(milli_gpu_ns: int, charged: bool = True, **borrowed: int) -> Use:
    return Use(WORK, charged, milli_gpu_ns, borrowed)


def late(hour: int, *uses: Use, **more: Any) -> Late:
    """What is put right of the hour from `hour` ns after T0 on."""
    return Late(T0 + hour, RATES, uses, **more)


def close(store: Store, hour: int, *postings: Posting, pool: str = "main") -> HourWork:
    """Closes an hour, `hour` ns after T0, with these postings."""
    work = store.hour_work(pool, T0 + hour)
    reconciliation = msgspec.structs.replace(NOTHING, pool=pool, hour_ns=T0 + hour)
    assert store.close_hour(Closing(pool, T0 + hour, postings, reconciliation, work))
    return work


def posting(**changes: Any) -> Posting:
    one = Posting(T0, T0, "main", Kind.USED, "tenant:a", "pool:main", 10, 5, GPU_HOUR, WORK)
    return msgspec.structs.replace(one, **changes)
