"""What is remembered of a deployment's replicas beside what runs on them: those that start, and those that failed."""

from typing import Final

from commonpool.core.forecast import Forecast
from commonpool.core.model import NS_PER_S, Replica, Tier
from commonpool.core.pace import Pace
from commonpool.core.scaling import Scaler, Why

BACKOFF_MIN_NS: Final = NS_PER_S // 2
BACKOFF_MAX_NS: Final = 30 * NS_PER_S
HEALTHY_NS: Final = 60 * NS_PER_S  # after so long the next failure is a first one again
FAILURES_MAX: Final = 3  # starts that failed in a row until the circuit opens


class Starting:
    """A replica that is to start and has not been ready yet."""

    __slots__ = ("build", "index", "pool", "replica", "since", "stopping")

    def __init__(self, replica: Replica, pool: str, index: int, build: str, now: int) -> None:
        self.replica = replica
        self.pool = pool  # where its devices are
        self.index = index
        self.build = build
        self.since = now
        self.stopping = False


class Crew:
    """What is remembered of a deployment's replicas beside what runs on them."""

    __slots__ = (
        "arrivals",
        "backoff_ns",
        "demand",
        "error",
        "failures",
        "first_tokens",
        "instead",
        "late_tokens",
        "numbers",
        "retry_at",
        "scaler",
        "starting",
        "starts",
        "unplaced",
        "wanted",
        "why",
        "within",
    )

    def __init__(self) -> None:
        self.scaler = Scaler()
        self.starting: dict[str, Starting] = {}
        self.numbers: dict[int, int] = {}  # the last incarnation, by index
        self.starts = Pace()  # how long a start takes
        self.demand = Forecast()  # of the model, in milli_gpu that its requests use or wait for
        self.arrivals = 0  # since the scaler was last asked
        self.first_tokens = 0
        self.late_tokens = 0
        self.instead: dict[str, int] = {}  # how many requests its fallback has taken, by tenant
        self.failures = 0
        self.backoff_ns = BACKOFF_MIN_NS
        self.retry_at = 0
        self.error = ""  # why the last one was lost or could not start, a sentence
        self.unplaced = ""  # why another one finds no place, a sentence
        self.wanted = 0
        self.within = 0  # how many wait whose tenants are within their guarantee, when the scaler was last asked
        self.why = Why.MINIMUM

    @property
    def broken(self) -> bool:
        """Whether the circuit is open."""
        return self.failures >= FAILURES_MAX

    def failed(self, reason: str, now: int) -> None:
        self.failures += 1
        self.error = reason
        self.retry_at = now + (BACKOFF_MAX_NS if self.broken else self.backoff_ns)
        self.backoff_ns = min(2 * self.backoff_ns, BACKOFF_MAX_NS)

    def first_token(self, tier: Tier | None, after_ns: int) -> None:
        """A request has got its first token, so long after it arrived."""
        self.first_tokens += 1
        if tier is not None and tier.first_token_target_ns is not None and after_ns > tier.first_token_target_ns:
            self.late_tokens += 1

    def healthy(self) -> None:
        self.failures = 0
        self.error = ""
