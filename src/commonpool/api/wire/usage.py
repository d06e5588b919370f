"""What was used in a time, and what was lent in it."""

from decimal import Decimal

import msgspec


class UsageRow(msgspec.Struct, frozen=True):
    """The use of one group; `group` has one value per name asked for in `by`, and none in the total.

    A request counts once, everything else is over all its attempts. `tokens_cached` is a part of `tokens_in`,
    `borrowed_gpu_seconds` of `gpu_seconds`. `lent_gpu_seconds` is None where a row is not one lender's. Waits are None
    where nothing was dispatched.
    """

    group: tuple[str, ...]
    requests: int
    attempts: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    gpu_seconds: Decimal
    borrowed_gpu_seconds: Decimal
    lent_gpu_seconds: Decimal | None
    wait_ns_mean: int | None
    wait_ns_p50: int | None
    wait_ns_p99: int | None
    wait_ns_max: int | None
    cost_micro: int


class UsageTable(msgspec.Struct, frozen=True):
    """The use of requests that arrived between two moments (`until_ns` excluded). The rows add up to `total`."""

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    currency: str
    rows: tuple[UsageRow, ...]
    total: UsageRow


class LoanSum(msgspec.Struct, frozen=True):
    """All loans from one lender ("" is the pool's unowned part) to one borrower."""

    lender: str
    borrower: str
    loans: int
    gpu_seconds: Decimal
    length_ns_mean: int
    length_ns_max: int


class LoanTable(msgspec.Struct, frozen=True):
    """Lender by borrower, for requests that arrived between two moments; pairs without a loan are left out."""

    since_ns: int
    until_ns: int
    loans: tuple[LoanSum, ...]
