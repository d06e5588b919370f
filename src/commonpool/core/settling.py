"""Settling: which postings the work of a tenant makes. Of one attempt (`settle`), or of all in an hour (`closing`).

An attempt uses its GPU time evenly from when it began to run until it ended; so the pieces of it in any hours, its
loans cut alike, sum to the whole. All else that is counted of it belongs to the hour it ended in, (start, end].
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from commonpool.core.ledger import (
    GPU_HOUR,
    METERS,
    PLATFORM,
    Counted,
    Kind,
    LedgerError,
    Posting,
    Rates,
    UnknownPriceError,
    Use,
    Work,
    hour_of,
    lender_account,
    tenant_account,
)
from commonpool.core.model import NS_PER_HOUR, UNPRICED, Outcome, UsageRecord
from commonpool.core.pricing import is_charged

NO_WORK: Final = Work()
_JOBS: Final = ("job", "replica")  # the endpoints of what is no request


def work_of(record: UsageRecord) -> Work:
    """The dimensions of an attempt."""
    return Work(
        record.tenant,
        record.app,
        record.cost_center,
        record.model,
        record.version,
        record.tier,
        record.endpoint,
        record.stream,
    )


def parts(record: UsageRecord, start_ns: int, end_ns: int) -> Use | None:
    """The piece of an attempt, and of its loans, within [start_ns, end_ns); None where it did not run then."""
    ended = record.arrived_ns + record.total_ns
    began = ended - record.run_ns
    if record.run_ns < 0 or record.milli_gpu_ns < 0:
        raise LedgerError(
            f"Attempt {record.attempt} of {record.request_id} ran for {record.run_ns} ns and used {record.milli_gpu_ns}"
            " milli_gpu_ns; neither can be below zero."
        )
    start, end = max(start_ns, began), min(end_ns, ended)
    if start >= end:
        return None
    used = _until(record, end - began) - _until(record, start - began)
    borrowed: dict[str, int] = {}
    for loan in record.loans:
        length = min(loan.end_ns, end) - max(loan.start_ns, start)
        if length > 0:
            borrowed[loan.lender] = borrowed.get(loan.lender, 0) + loan.milli_gpu * length
    return Use(work_of(record), is_charged(record), used, borrowed) if used else None


def _until(record: UsageRecord, ns: int) -> int:
    """What it had used when it had run for so long."""
    return record.milli_gpu_ns * ns // record.run_ns


def metered(record: UsageRecord) -> dict[str, int]:
    """What is metered of an attempt beside GPU time, by meter: nothing of one that runs or is not charged."""
    if record.outcome is Outcome.RUNNING or not is_charged(record):
        return {}
    found = {
        "million_tokens_in": record.tokens_in - record.tokens_cached,
        "million_tokens_cached": record.tokens_cached,
        "million_tokens_out": record.tokens_out,
        "network_gb": record.bytes_in + record.bytes_out,
        "cpu_hour": record.cpu_ns * 1000,
        "memory_gib_hour": record.memory_mib_s,
        "gpu_memory_gib_hour": record.gpu_memory_mib_s,
    }
    if record.outcome is Outcome.COMPLETED and record.endpoint not in _JOBS:
        found["request"] = 1
    return {meter: quantity for meter, quantity in found.items() if quantity}


def hours_of(record: UsageRecord, offset_ns: int = 0) -> range:
    """The starts of the hours that an attempt ran and ended in."""
    ended = record.arrived_ns + record.total_ns
    last = hour_of(ended - 1, offset_ns)
    return range(min(last, hour_of(ended - record.run_ns, offset_ns)), last + 1, NS_PER_HOUR)


def settle(record: UsageRecord, hours: Iterable[tuple[int, Rates]], groups: Container[str] = ()) -> tuple[Posting, ...]:
    """The postings that one attempt makes, each hour of it at that hour's rates. `hours` are at least `hours_of` it.

    `groups` are the names of groups, which loans do not tell from tenants. Raises LedgerError where an hour is missing.
    """
    ended = record.arrived_ns + record.total_ns
    entries = Entries(record.pool, groups)
    used = 0
    for start, rates in hours:
        use = parts(record, start, start + NS_PER_HOUR)
        if use is not None:
            entries.use(use, start, rates)
            used += use.milli_gpu_ns
        if start < ended <= start + NS_PER_HOUR and rates.meters:
            entries.fees(Counted(work_of(record), metered(record)), start, rates)
    if used != record.milli_gpu_ns:
        raise LedgerError(
            f"Of {record.milli_gpu_ns} milli_gpu_ns of attempt {record.attempt} of {record.request_id} only {used} lie"
            " in the hours that were given; give the rates of every hour it ran in."
        )
    return entries.postings()


class Entries:
    """Postings of one pool as they are added up: one for each hour, kind, pair of accounts, price, meter and work."""

    def __init__(self, pool: str, groups: Container[str]) -> None:
        self.pool = pool
        self.account = f"pool:{pool}"
        self._groups = groups
        self._sums: dict[tuple[int, Kind, str, str, str, int, Work], int] = {}

    def add(
        self, about: int, kind: Kind, debit: str, credit: str, quantity: int, micro: int, work: Work = NO_WORK
    ) -> None:
        """GPU time. Nothing is added where there is none. Raises UnknownPriceError where it has no price."""
        if not quantity:
            return
        if micro < 0:
            raise _unpriced(f"A GPU-hour of pool {self.pool}", micro, about, f"prices.gpu_hour.{self.pool}")
        key = (about, kind, debit, credit, GPU_HOUR, micro, work)
        self._sums[key] = self._sums.get(key, 0) + quantity

    def supplied(self, about: int, kind: Kind, debit: str, quantity: int, rates: Rates) -> None:
        """GPU time that somebody pays the pool for and that is nobody's work."""
        self.add(about, kind, debit, self.account, quantity, rates.micro_per_gpu_hour)

    def use(self, use: Use, about: int, rates: Rates, sign: int = 1) -> None:
        """Work: what is within the guarantee, and what is borrowed. `sign` -1 takes it back."""
        payer, kind = (tenant_account(use.work.tenant), Kind.USED) if use.charged else (PLATFORM, Kind.UNCHARGED)
        own = use.milli_gpu_ns - sum(use.borrowed.values())
        if own < 0 or min(use.borrowed.values(), default=0) < 0:
            raise LedgerError(
                f"Work of tenant {use.work.tenant} in pool {self.pool} used {use.milli_gpu_ns} milli_gpu_ns and"
                f" borrowed {use.borrowed} of it; a part cannot be below zero or more than the whole."
            )
        self.add(about, kind, payer, self.account, sign * own, rates.micro_per_gpu_hour, use.work)
        for lender, quantity in use.borrowed.items():
            account = lender_account(lender, self._groups)
            self.add(about, Kind.BORROWED, payer, account, sign * quantity, rates.lending_micro_per_gpu_hour, use.work)

    def work(self, use: Use, about: int, rates: Rates, sign: int = 1) -> None:
        """Work, and what its lenders pay the pool for what was borrowed. `sign` -1 takes it back."""
        self.use(use, about, rates, sign)
        for lender, quantity in use.borrowed.items():
            self.supplied(about, Kind.LENT, lender_account(lender, self._groups), sign * quantity, rates)

    def taken(self, use: Use) -> dict[str, int]:
        """Whose guarantee work used: its tenant's, and its lenders', by account."""
        taken = {lender_account(lender, self._groups): quantity for lender, quantity in use.borrowed.items()}
        tenant = tenant_account(use.work.tenant)
        taken[tenant] = taken.get(tenant, 0) + use.milli_gpu_ns - sum(use.borrowed.values())
        return taken

    def fees(self, counted: Counted, about: int, rates: Rates) -> None:
        """What is metered beside GPU time, at the prices of its meters."""
        for name, quantity in _priced(counted.quantities, rates.meters).items():
            if name not in METERS or name == GPU_HOUR:
                raise LedgerError(f"{name} is not a meter; there are {', '.join(METERS)}.")
            if quantity < 0:
                raise LedgerError(
                    f"{quantity} of {name} for tenant {counted.work.tenant} is below zero; what was metered cannot be."
                )
            micro = rates.meters.get(name, 0)
            if micro < 0:
                raise _unpriced(f"The meter {name}", micro, about, f"prices.meters.{name}")
            if quantity and name in rates.meters:
                key = (about, Kind.FEE, tenant_account(counted.work.tenant), PLATFORM, name, micro, counted.work)
                self._sums[key] = self._sums.get(key, 0) + quantity

    def postings(self, hour_ns: int | None = None) -> tuple[Posting, ...]:
        """All of them, in an order of their own, in the books of one hour or each of that which it is about."""
        return tuple(
            Posting(
                about if hour_ns is None else hour_ns,
                about,
                self.pool,
                kind,
                debit,
                credit,
                quantity,
                micro,
                meter,
                work,
            )
            for (about, kind, debit, credit, meter, micro, work), quantity in sorted(self._sums.items())
            if quantity
        )


def _priced(quantities: Mapping[str, int], meters: Mapping[str, int]) -> dict[str, int]:
    """Cached tokens are other tokens in where they have no price of their own."""
    found = dict(quantities)
    if "million_tokens_cached" in found and "million_tokens_cached" not in meters:
        found["million_tokens_in"] = found.get("million_tokens_in", 0) + found.pop("million_tokens_cached")
    return found


def _unpriced(what: str, micro: int, about: int, key: str) -> LedgerError:
    if micro != UNPRICED:
        return LedgerError(f"{what} has the price {micro}; a price cannot be below zero.")
    return UnknownPriceError(
        f"{what} has no price in the hour that begins {about // 1_000_000_000} s after 1970; add one from then on, or"
        f" earlier, to {key}."
    )
