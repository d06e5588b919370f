"""Records: what is kept for ever of each attempt at a request or job, whatever ended it."""

from typing import Final

import msgspec

from commonpool.core.entries import Entry
from commonpool.core.events import Ended
from commonpool.core.model import (
    NS_PER_S,
    STOPPED,
    UNPRICED,
    Job,
    Loan,
    LoanEnd,
    Outcome,
    Price,
    Reason,
    Request,
    TokenSource,
    Usage,
    UsageRecord,
)
from commonpool.core.pricing import charged_price
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST
from commonpool.core.sites import Serving
from commonpool.core.state import State

STATUS_DONE: Final = 200
STATUS_CLIENT_GONE: Final = 499
STATUS_FAILED: Final = 500
STATUS_OF_END: Final[dict[Outcome, int]] = {
    Outcome.COMPLETED: STATUS_DONE,
    Outcome.CANCELLED: STATUS_CLIENT_GONE,
    Outcome.FAILED: STATUS_FAILED,
}
STATUS_OF: Final[dict[Reason, int]] = {
    Reason.NEVER_FITS: 400,
    Reason.UNKNOWN_TIER: 400,
    Reason.UNKNOWN_TENANT: 403,
    Reason.UNKNOWN_MODEL: 404,
    Reason.UNKNOWN_POOL: 404,
    Reason.QUEUE_FULL: 429,
    Reason.PROMISE: 429,
    Reason.REQUESTS_PER_MINUTE: 429,
    Reason.TOKENS_PER_MINUTE: 429,
    Reason.BYTES_PER_SECOND: 429,
    Reason.CONCURRENCY: 429,
    Reason.INPUT: 400,
    Reason.OUTPUT: 400,
    Reason.RUN_TIME: 504,
    Reason.KEY_REVOKED: 401,
    Reason.BUDGET: 429,
    Reason.NO_REPLICA: 503,
    Reason.NO_JOURNAL: 503,
}
_NO_USAGE: Final = Usage()
_RUNNING: Final = Outcome.RUNNING


def of_request(
    entry: Entry,
    request: Request,
    pool: str,
    version: str,
    prices: dict[str, Price],
    now: int,
    *,
    ran: bool,
    outcome: Outcome,
    status: int,
    usage: Usage = _NO_USAGE,
    reason: str = "",
    first_token_at: int = 0,
    bytes_out: int = 0,
    gpu_memory_mib: int = 0,
) -> UsageRecord:
    """The record of an attempt that ended now. `ran` is whether it was dispatched; if not, it is its next one."""
    arrived = entry.arrived
    began = entry.dispatched if ran else now
    price = prices.get(pool)
    # By position, in the order of the fields: by name it takes ten times as long, for every request.
    return UsageRecord(
        request.id,
        entry.attempt if ran else entry.attempt + 1,
        request.tenant,
        request.app,
        request.cost_center,
        request.model,
        version,
        request.tier,
        request.endpoint,
        request.stream,
        pool,
        entry.replica_id if ran else "",
        outcome,
        status,
        reason,
        arrived,
        began - arrived,
        first_token_at - arrived if first_token_at else 0,
        now - arrived,
        now - began,
        usage.tokens_in,
        usage.tokens_cached,
        usage.tokens_out,
        usage.source,
        entry.ask if ran else 0,
        entry.ask * (now - began),
        charged_price(outcome, UNPRICED if price is None else price.at(began)),
        () if entry.ended is None else tuple(entry.ended),
        entry.waits,
        request.bytes_in if ran else 0,
        bytes_out,
        0,
        0,
        gpu_memory_mib * (now - began) // NS_PER_S,
    )


def of_job(
    entry: Entry,
    job: Job,
    prices: dict[str, Price],
    now: int,
    *,
    ran: bool,
    outcome: Outcome,
    status: int,
    reason: str = "",
    exited: bool = False,
    cpu_ns: int = 0,
    memory_mib_s: int = 0,
    gpu_memory_mib: int = 0,
) -> UsageRecord:
    """As `of_request`: its endpoint is the kind of job, and it has no tokens. `exited`: its own command ended it."""
    began = entry.dispatched if ran else now
    price = prices.get(job.pool)
    return UsageRecord(
        request_id=job.id,
        attempt=entry.attempt if ran else entry.attempt + 1,
        tenant=job.tenant,
        app=job.app,
        cost_center=job.cost_center,
        model="",
        version="",
        tier=job.tier,
        endpoint=job.kind,
        stream=False,
        pool=job.pool,
        replica="",
        outcome=outcome,
        status=status,
        reason=reason,
        arrived_ns=entry.arrived,
        wait_ns=began - entry.arrived,
        first_token_ns=0,
        total_ns=now - entry.arrived,
        run_ns=now - began,
        tokens_in=0,
        tokens_cached=0,
        tokens_out=0,
        token_source=TokenSource.ENGINE,
        milli_gpu=entry.ask if ran else 0,
        milli_gpu_ns=entry.ask * (now - began),
        micro_per_gpu_hour=charged_price(outcome, UNPRICED if price is None else price.at(began), exited),
        loans=() if entry.ended is None else tuple(_until(loan, now) for loan in entry.ended),
        waits=entry.waits,
        cpu_ns=cpu_ns,
        memory_mib_s=memory_mib_s,
        gpu_memory_mib_s=gpu_memory_mib * (now - began) // NS_PER_S,
    )


def unserved(state: State, entry: Entry, outcome: Outcome, status: int, reason: str, now: int) -> UsageRecord:
    """The record of what was not dispatched."""
    task = entry.task
    prices = state.policy.prices
    if isinstance(task, Job):
        return of_job(entry, task, prices, now, ran=False, outcome=outcome, status=status, reason=reason)
    site = state.sites[task.model]
    return of_request(
        entry,
        task,
        site.quota.pool,
        site.version,
        prices,
        now,
        ran=False,
        outcome=outcome,
        status=status,
        reason=reason,
    )


def unanswered(
    state: State, request: Request, attempts: int, arrived: int, outcome: Outcome, status: int, reason: str, now: int
) -> UsageRecord:
    """The record of what was kept for later and is not to be tried again, after so many attempts."""
    entry = Entry(request, 0, arrived)
    entry.attempt = attempts
    if request.model in state.sites:
        return unserved(state, entry, outcome, status, reason, now)
    tenant = state.policy.tenants.get(request.tenant)
    return of_request(
        entry,
        request,
        "" if tenant is None else tenant.pool,
        "",
        state.policy.prices,
        now,
        ran=False,
        outcome=outcome,
        status=status,
        reason=reason,
    )


def noted(entry: Entry, prices: dict[str, Price], until: int) -> UsageRecord:
    """What is noted of an attempt that runs: the record that it would have if it ended at `until`; its outcome says
    that it has not, and the reason of a loan that goes on that this one has not either.
    """
    task = entry.task
    if isinstance(task, Job):
        note = of_job(entry, task, prices, until, ran=True, outcome=_RUNNING, status=0)
    else:
        pool = entry.node.pool
        note = of_request(entry, task, pool, entry.version, prices, until, ran=True, outcome=_RUNNING, status=0)
    if entry.running is None and entry.ended is None:
        return note
    loans = [_until(loan, until) for loan in entry.ended or () if loan.start_ns < until]
    loan = entry.running
    while loan is not None:
        if loan.start_ns <= until:
            borrower, lender = loan.borrower, loan.lender
            loans.append(Loan(lender, borrower, entry.id, loan.milli_gpu, loan.start_ns, until, LoanEnd.RUNNING))
        loan = loan.following
    return msgspec.structs.replace(note, loans=tuple(loans))


def voided(note: UsageRecord, until: int) -> UsageRecord:
    """The record of an attempt of which nothing is left but what was noted: it ran until `until` at least, when the
    product was last known to live. It is not charged.
    """
    ended = max(until, note.arrived_ns + note.total_ns)
    began = note.arrived_ns + note.wait_ns
    loans = (
        msgspec.structs.replace(loan, end_ns=ended, reason=LoanEnd.TASK_DONE)
        if loan.reason is LoanEnd.RUNNING
        else loan
        for loan in note.loans
    )
    return msgspec.structs.replace(
        note,
        outcome=Outcome.FAILED,
        status=STATUS_FAILED,
        reason=STOPPED,
        total_ns=ended - note.arrived_ns,
        run_ns=ended - began,
        milli_gpu_ns=note.milli_gpu * (ended - began),
        micro_per_gpu_hour=0,
        loans=tuple(loans),
    )


def measured(site: Serving, entry: Entry, request: Request, event: Ended, now: int) -> Usage:
    """The tokens to record. Work that failed has none; work cut before its engine told is estimated by its time."""
    usage = event.usage
    if event.outcome is Outcome.FAILED:
        return Usage(source=usage.source)
    if event.outcome is Outcome.CANCELLED and usage.source is TokenSource.ESTIMATED and site.pace.expected:
        served = (now - entry.dispatched) // site.pace.expected - INPUT_COST * usage.tokens_in
        most = request.sequences * site.shape.context_tokens
        return msgspec.structs.replace(usage, tokens_out=min(most, max(0, served // OUTPUT_COST)))
    return usage


def _until(loan: Loan, end_ns: int) -> Loan:
    """A loan ends with its attempt, also where that is heard of later."""
    if loan.end_ns <= end_ns:
        return loan
    return msgspec.structs.replace(loan, start_ns=min(loan.start_ns, end_ns), end_ns=end_ns)
