"""What the admin API says of money: bills, periods, lending, reconciliation, and the postings of one request.

Units as in `wire`. An account is `tenant:NAME`, `group:NAME`, `platform`, or `pool:NAME`, which supplies the GPU time.
"""

from decimal import Decimal
from typing import Literal

import msgspec

from commonpool.api.wire.requests import Attempt
from commonpool.api.wire.units import gpu_seconds
from commonpool.core.billing import UnitCosts
from commonpool.core.ledger import GPU_HOUR
from commonpool.core.said import Said

# In what unit a quantity of each meter is given; of GPU time it is gpu_seconds.
UNITS = {
    GPU_HOUR: "gpu_seconds",
    "request": "requests",
    "million_tokens_in": "tokens",
    "million_tokens_cached": "tokens",
    "million_tokens_out": "tokens",
    "network_gb": "bytes",
    "cpu_hour": "core_seconds",
    "memory_gib_hour": "mib_seconds",
    "gpu_memory_gib_hour": "mib_seconds",
    "storage_gib_hour": "mib_seconds",
}


def quantity(meter: str, amount: int) -> Decimal:
    """A quantity of a meter (in the units of `core.ledger.METERS`) in its unit of UNITS, exactly."""
    return gpu_seconds(amount) if meter in {GPU_HOUR, "cpu_hour"} else Decimal(amount)


class Amount(msgspec.Struct, frozen=True):
    """GPU time and what it cost."""

    gpu_seconds: Decimal
    cost_micro: int


class Charge(msgspec.Struct, frozen=True):
    """A part of a line. The charges of a line sum to its total.

    `kind` is that of the postings (`core.ledger.Kind`), `earned` (what borrowers paid: below zero) or `shared`; `name`
    is the meter, or the name of the shared cost, which has no quantity, and `split` how that is shared.
    """

    kind: str
    name: str
    layer: str
    cost_micro: int
    quantity: Decimal | None = None
    unit: str = ""
    split: str = ""


class BillLine(msgspec.Struct, frozen=True):
    """One line; `group` has one value per name in `by`, and none in the total.

    `guaranteed` is the GPU time that is paid for as its own: used, idle, lent, or taken by its replicas that come and
    go. `used` is all its charged work, what was `borrowed` included. `lent` is what others used of its guarantee; its
    cost is what they paid for it. `layers` sum to the total, as `charges` do. `unit_costs` is None without results.
    """

    group: tuple[str, ...]
    requests: int
    completed: int
    attempts: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    guaranteed: Amount
    used: Amount
    borrowed: Amount
    lent: Amount
    layers: dict[str, int]
    charges: tuple[Charge, ...]
    unit_costs: UnitCosts | None
    total_micro: int


class BillTable(msgspec.Struct, frozen=True):
    """The bill of a period, of what is in the books until `until_ns`.

    `closed`: every day of it lies in a month that is closed, so it never changes. `forecast_micro` is what the total
    will be at the end of the period if it goes on alike, None where it is over or has not begun. `notes` are sentences,
    `said` the same by their names.
    """

    period: str
    start_ns: int
    end_ns: int
    until_ns: int
    time_zone: str
    currency: str
    closed: bool
    by: tuple[str, ...]
    lines: tuple[BillLine, ...]
    total: BillLine
    forecast_micro: int | None
    notes: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()


class LentLine(msgspec.Struct, frozen=True):
    """What one account lent to another, and was paid for it."""

    lender: str
    borrower: str
    gpu_seconds: Decimal
    cost_micro: int


class LendingTable(msgspec.Struct, frozen=True):
    """Lender by borrower, of what is in the books of a period; pairs without a loan are left out."""

    period: str
    start_ns: int
    end_ns: int
    until_ns: int
    currency: str
    pairs: tuple[LentLine, ...]


class BillingPeriod(msgspec.Struct, frozen=True):
    """A month. `open`: it goes on, or its last hours are not in the books yet. `over`: it can be closed."""

    name: str
    state: Literal["open", "over", "closed"]
    start_ns: int
    end_ns: int
    closed_ns: int | None = None
    closed_by: str = ""


class BillingPeriods(msgspec.Struct, frozen=True):
    """The months since the books began, oldest first."""

    periods: tuple[BillingPeriod, ...]


class ClosePeriod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which month to close: `2026-10`."""

    name: str


class ReconciledHour(msgspec.Struct, frozen=True):
    """An hour of a pool in the books, against what there was; GPU seconds.

    `devices` is what its devices could do, `charged` what the accounts were charged for, at `price_micro` for a
    GPU-hour. `held` is what replicas and jobs were given, `reported` what the backends saw held; `causes` say why these
    differ, and sum to held - reported. `closes`: all there was is charged, and what was seen otherwise is only that
    something started or ended a moment later than told, or that the product was down.
    """

    pool: str
    hour_ns: int
    devices: Decimal
    charged: Decimal
    price_micro: int
    cost_micro: int
    held: Decimal
    reported: Decimal
    causes: dict[str, Decimal]
    closes: bool


class ReconciliationTable(msgspec.Struct, frozen=True):
    """The hours in the books between two moments, by pool and hour. `closes`: every one of them does."""

    since_ns: int
    until_ns: int
    currency: str
    closes: bool
    hours: tuple[ReconciledHour, ...]


class PostingLine(msgspec.Struct, frozen=True):
    """One posting: `quantity` of `meter` in the hour from `hour_ns` on, paid by `debit` to `credit`.

    `price_micro` is for one of the meter's own unit, such as a GPU-hour. `booked`: the hour is in the books; if not, it
    is what it will be at today's prices.
    """

    hour_ns: int
    kind: str
    debit: str
    credit: str
    meter: str
    quantity: Decimal
    unit: str
    price_micro: int
    cost_micro: int
    booked: bool


class AttemptPostings(msgspec.Struct, frozen=True):
    """An attempt and what it cost. `cost_micro` is what its tenant pays, the sum of those postings.

    `problem` says why it has no postings, though it ran.
    """

    attempt: Attempt
    postings: tuple[PostingLine, ...]
    cost_micro: int
    problem: str = ""


class RequestPostings(msgspec.Struct, frozen=True):
    """Everything that one request or job cost, by attempt."""

    id: str
    currency: str
    attempts: tuple[AttemptPostings, ...]
    cost_micro: int


class BilledAttempts(msgspec.Struct, frozen=True):
    """What a bill's lines are made of, in pages: attempts with their postings within the period.

    With a filter it looks through so many at once: where it stops for that, `looked_ns` is until when it has looked
    through what ended, and `after` goes on from there; there may be few on such a page, or none.
    """

    records: tuple[AttemptPostings, ...]
    after: str | None
    looked_ns: int | None = None
