"""The ledger: double entry in integers, append-only; who owes whom for every milli_gpu_ns of every pool.

Accounts are `tenant:NAME`, `group:NAME` (what a group is guaranteed beyond its members), `platform`, and `pool:NAME`,
which supplies the GPU time. A posting moves one quantity from one account to another, so whatever is posted sums to
zero. Every hour of a pool is closed once (`close`): its capacity is split exactly among

- `used`: a tenant's own work within its guarantee; the tenant pays the pool;
- `idle`: guaranteed and used by nobody; its owner pays the pool, the platform for what nobody owns;
- `lent`: guaranteed and used by somebody else; its owner pays the pool, and the borrower pays the owner (`borrowed`);
- `uncharged`: work within a guarantee that is not charged (`pricing.charged_price`); the platform pays the pool;
- `loading`, `draining`: replicas that come and go; the deployment's holder pays the pool;
- `down`: nobody kept the books; the platform pays the pool.

So the pool is credited with capacity × time × price, to the unit. `borrowed` passes between tenants at the lending rate
and adds nothing; the platform pays it for work that is not charged. `fee` is what is metered beside GPU time, paid to
the platform. What is taken back is posted once more with a quantity below zero, between the same accounts, so that sums
of postings need no second look at who paid whom.

`settling` says what one attempt's postings are, `closing` closes an hour, `billing` makes bills of them.

An hour is one of the billing time zone's: it begins a whole number of hours from local midnight.
"""

import enum
from collections.abc import Container
from typing import Final

import msgspec

from commonpool.core.model import NS_PER_HOUR
from commonpool.core.pricing import COST_UNIT

PLATFORM: Final = "platform"

GPU_HOUR: Final = "gpu_hour"
# What can be metered: how many units of quantity make one priced unit. Each divides COST_UNIT, so costs are exact.
METERS: Final[dict[str, int]] = {
    GPU_HOUR: COST_UNIT,  # milli_gpu × nanoseconds
    "request": 1,
    "million_tokens_in": 1_000_000,
    "million_tokens_cached": 1_000_000,
    "million_tokens_out": 1_000_000,
    "network_gb": 1_000_000_000,  # bytes
    "cpu_hour": COST_UNIT,  # thousandths of a core × nanoseconds
    "memory_gib_hour": 1024 * 3600,  # MiB × seconds, of main memory
    "gpu_memory_gib_hour": 1024 * 3600,  # MiB × seconds
    "storage_gib_hour": 1024 * 3600,  # MiB × seconds
}


class LedgerError(ValueError):
    """What was to be posted cannot be right: its sentence says what, which value, and what would be."""


class UnknownPriceError(LedgerError):
    """Something is to be charged for which no price is in force."""


class Kind(enum.StrEnum):
    """What a posting is about."""

    USED = "used"
    IDLE = "idle"
    LENT = "lent"
    UNCHARGED = "uncharged"
    LOADING = "loading"
    DRAINING = "draining"
    DOWN = "down"
    BORROWED = "borrowed"
    FEE = "fee"


SUPPLIED: Final = frozenset(Kind) - {Kind.BORROWED, Kind.FEE}  # what a pool supplies: these sum to capacity × time


class Work(msgspec.Struct, frozen=True, order=True):
    """What somebody's work was: the dimensions of a bill. All "" where a posting is about no work, such as idle."""

    tenant: str = ""
    app: str = ""
    cost_center: str = ""
    model: str = ""
    version: str = ""
    tier: str = ""
    endpoint: str = ""
    stream: bool = False


class Posting(msgspec.Struct, frozen=True):
    """`quantity` of `meter` (METERS has its unit), from `debit` (who pays) to `credit`, at `micro` for a priced unit.

    `hour_ns` is the hour in whose books it stands; `about_ns` the hour it is about, earlier in a correction. A quantity
    below zero takes back what was posted before.
    """

    hour_ns: int
    about_ns: int
    pool: str
    kind: Kind
    debit: str
    credit: str
    quantity: int
    micro: int
    meter: str = GPU_HOUR
    work: Work = Work()

    @property
    def exact_cost(self) -> int:
        """In 1 / COST_UNIT micro-units of the billing currency, as everywhere in `pricing`."""
        return self.quantity * self.micro * (COST_UNIT // METERS[self.meter])


class Standing(msgspec.Struct, frozen=True, array_like=True, tag="standing"):
    """What a pool had and whose it was, from `start_ns` to `end_ns`, within one hour; (pool, start_ns) is its key.

    `guaranteed` is by account, groups beyond their members; the rest of `milli_gpu` is the platform's. It is noted
    again while it lasts, with a later end.
    """

    pool: str
    start_ns: int
    end_ns: int
    milli_gpu: int
    guaranteed: dict[str, int]


class Phase(enum.StrEnum):
    """What a replica or job did with its devices."""

    LOADING = "loading"  # from the order to start until it is ready
    SERVING = "serving"  # not charged as such: the requests on it are
    DRAINING = "draining"  # from its end being decided until its devices are free
    HELD = "held"  # by the backend's own account: its process, or engine, was there


class Span(msgspec.Struct, frozen=True, array_like=True, tag="span"):
    """What held `milli_gpu` of a pool, within one hour; (id, phase, start_ns) is its key. Noted again as `Standing`.

    `account` is who pays for loading and draining: the one tenant that may use the model, else the platform.
    """

    id: str
    phase: Phase
    pool: str
    model: str
    account: str
    milli_gpu: int
    start_ns: int
    end_ns: int


class Use(msgspec.Struct, frozen=True):
    """Work of one kind in an hour: GPU time, all of it, and what of it was borrowed, by lender as a loan names them."""

    work: Work
    charged: bool
    milli_gpu_ns: int
    borrowed: dict[str, int] = {}


class Counted(msgspec.Struct, frozen=True):
    """What is metered beside GPU time of charged work in an hour; quantities by meter, in the units of METERS.

    The tokens in are without the cached ones here, as each has a price of its own.
    """

    work: Work
    quantities: dict[str, int]


class Rates(msgspec.Struct, frozen=True):
    """What is in force in one hour, micro-units: for a GPU-hour of the pool, of a loan, and by other meter.

    UNPRICED where a price begins later only. A meter that is not in `meters` costs nothing and is not posted; cached
    tokens are then as other tokens in.
    """

    micro_per_gpu_hour: int
    lending_micro_per_gpu_hour: int
    meters: dict[str, int] = {}


class Late(msgspec.Struct, frozen=True):
    """What is to be put right of an hour that is closed, at the prices that it was closed at.

    `uses` and `counted` were heard of only now, `returned` was posted then and was not so: it is taken back.
    """

    about_ns: int
    rates: Rates
    uses: tuple[Use, ...] = ()
    returned: tuple[Use, ...] = ()
    counted: tuple[Counted, ...] = ()


class Hour(msgspec.Struct, frozen=True):
    """All that is known of one hour of a pool when it is closed. Standings do not overlap; gaps are `down`.

    `before` is the last standing before it: what there was in a gap at its start. What is counted in the books of the
    pool "" is of no pool.
    """

    pool: str
    start_ns: int
    rates: Rates
    standings: tuple[Standing, ...] = ()
    spans: tuple[Span, ...] = ()
    uses: tuple[Use, ...] = ()
    counted: tuple[Counted, ...] = ()
    late: tuple[Late, ...] = ()
    before: Standing | None = None

    @property
    def end_ns(self) -> int:
        return self.start_ns + NS_PER_HOUR


def hour_of(ns: int, offset_ns: int = 0) -> int:
    """The start of the hour that a time is in. Hours begin `offset_ns` after full hours UTC."""
    return ns - (ns - offset_ns) % NS_PER_HOUR


def tenant_account(tenant: str) -> str:
    return f"tenant:{tenant}"


def lender_account(lender: str, groups: Container[str]) -> str:
    """The account of a loan's lender: a tenant, one of the groups, or the platform for the pool's unowned part ("")."""
    if not lender:
        return PLATFORM
    return f"group:{lender}" if lender in groups else f"tenant:{lender}"
