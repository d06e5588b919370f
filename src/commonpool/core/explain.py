"""Why something waited, or was refused, in words: every `Cause` and every `Reason` has its words here and only here.

Names are those of the configuration (`a-z 0-9 . _ -`), so every text is one line of ASCII and fits into a header.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from commonpool.core.model import NS_PER_S, RECALLED, STOPPED, Cause, Outcome, Reason, UsageRecord, Wait
from commonpool.core.scaling import Why

PARTS_SHOWN: Final = 5  # of one wait in one line; a reader wants the longest, and a header has no room for a hundred
_NS_PER_MS: Final = 1_000_000
_NS_PER_TENTH: Final = NS_PER_S // 10


class Words(NamedTuple):
    """What happened, as a clause, and what one can do about it, as a sentence."""

    text: str
    advice: str


class WaitPart(Wait, frozen=True, array_like=False):
    """A part of a wait in words: all that was for one cause and one name, how long, and what to do about it."""

    text: str
    advice: str


# Text, what stands in its braces where there is no name, advice. Without braces it is about nobody.
CAUSES: Final[dict[Cause, tuple[str, str, str]]] = {
    Cause.OWN_QUEUE: (
        "behind others of its tenant",
        "",
        "Give it a tier of higher priority, or its tenant a larger guarantee.",
    ),
    Cause.NO_REPLICA: (
        "no replica of {} ready",
        "its model",
        "See `commonpool status` for why its replicas are not ready.",
    ),
    Cause.SLOTS: (
        "every slot of {} or its KV memory taken",
        "its model",
        "Add replicas of the model, or ask for fewer tokens with max_tokens.",
    ),
    Cause.DEVICES: (
        "too few GPUs free in {}",
        "its pool",
        "Add GPUs to the pool, or ask for fewer at once.",
    ),
    Cause.TURN: (
        "others first in the order between tenants",
        "",
        "Give its tenant a larger guarantee, within which nobody passes it, or a larger weight for the surplus.",
    ),
    Cause.CONCURRENCY: (
        "{} at its concurrent_requests",
        "tenant",
        "Raise limits.concurrent_requests there.",
    ),
    Cause.APP_LIMIT: (
        "jobs of {} at what they may hold",
        "its app",
        "Raise limits.gpus, limits.cpu_cores or limits.memory of the app.",
    ),
    Cause.ELASTIC_CAP: (
        "{} at its elastic_cap",
        "tenant",
        "Raise the elastic_cap there.",
    ),
    Cause.LOAN_DUE: (
        "loan to {} due",
        "another tenant",
        "Keep more of the tenant's guarantee unlent, with headroom or reserved.",
    ),
    Cause.POOL_FULL: (
        "tenant at its guarantee and nothing left to borrow",
        "",
        "Give its tenant a larger guarantee, or the pool more GPUs.",
    ),
    Cause.BORROWING_DENIED: (
        "tenant at its guarantee and borrowing denied while {} waits for its own",
        "another tenant",
        "Give its tenant a larger guarantee, or the pool more GPUs.",
    ),
    Cause.KEPT: (
        "kept until its tenant had time for it",
        "",
        "Raise the tenant's guarantee, or set a longer queue.max_wait.",
    ),
    Cause.FORECAST: (
        "tenant at its guarantee and idle GPUs wanted back too soon for a long loan",
        "",
        "State a shorter expected duration if it has one, or give its tenant a larger guarantee.",
    ),
}

REASONS: Final[dict[Reason, Words]] = {
    Reason.NEVER_FITS: Words(
        "it asks for more than its tenant, its limits or a replica can ever give",
        "Ask for fewer sequences, a shorter prompt or fewer tokens out, or have the tenant's elastic_cap raised.",
    ),
    Reason.QUEUE_FULL: Words(
        "the queue_length of its tenant, app or key was reached",
        "Send fewer at once, or raise limits.queue_length or the tenant's guarantee.",
    ),
    Reason.PROMISE: Words(
        "it could not be started within what its tenant's max_wait promises",
        "Try again later, raise the tenant's guarantee, or set a longer queue.max_wait.",
    ),
    Reason.REQUESTS_PER_MINUTE: Words(
        "its tenant, app or key had used its requests a minute",
        "Try again after the answer's retry-after, or raise limits.requests.",
    ),
    Reason.TOKENS_PER_MINUTE: Words(
        "its tenant, app or key had used its tokens a minute",
        "Try again after the answer's retry-after, or raise limits.tokens.",
    ),
    Reason.BYTES_PER_SECOND: Words(
        "its tenant, app or key had used its bytes a second",
        "Try again after the answer's retry-after, or raise limits.bandwidth.",
    ),
    Reason.CONCURRENCY: Words(
        "more of its app or key waited than its concurrent_requests serve within max_wait",
        "Send fewer at once, or raise limits.concurrent_requests there.",
    ),
    Reason.INPUT: Words(
        "its prompt was longer than its tenant, app or key may send",
        "Shorten the prompt, or raise limits.input.",
    ),
    Reason.OUTPUT: Words(
        "it asked for more output than its tenant, app or key may have",
        "Ask for a smaller max_tokens or n, or raise limits.output.",
    ),
    Reason.RUN_TIME: Words(
        "it ran longer than its tenant, app or key may",
        "Ask for less, or raise limits.run_time.",
    ),
    Reason.KEY_REVOKED: Words(
        "its key was revoked while it waited",
        "Send it again with a key that is live.",
    ),
    Reason.BUDGET: Words(
        "its tenant's budget was spent, or would be by what is open",
        "Wait for the end of the billing period, or raise budget.month of its tenant.",
    ),
    Reason.NO_REPLICA: Words(
        "no replica of its model was ready within max_wait",
        "See `commonpool status` for why its replicas are not ready.",
    ),
    Reason.NO_JOURNAL: Words(
        "its usage could not be recorded, and unmetered work does not exist",
        "See the warnings of `commonpool status`; most often a disk is full.",
    ),
    Reason.UNKNOWN_TENANT: Words(
        "its tenant does not exist any more",
        "Use a key of a tenant of the configuration in force.",
    ),
    Reason.UNKNOWN_MODEL: Words(
        "its model does not exist, or is not open to its tenant",
        "Ask for one that /v1/models lists.",
    ),
    Reason.UNKNOWN_POOL: Words(
        "its pool does not exist, or is not its tenant's",
        "Name the pool that its tenant draws on.",
    ),
    Reason.UNKNOWN_TIER: Words(
        "its tier is unknown to its tenant",
        "Use one of the tiers in the tenant's queue.priority.",
    ),
}

WHYS: Final[dict[Why, str]] = {
    Why.LOAD: "that many are needed for what runs and arrives",
    Why.WAIT: "what waits would otherwise wait longer than it was promised",
    Why.GROWTH: "more and more arrives, and a start takes time",
    Why.FORECAST: "its tenants usually want that many at this hour",
    Why.KV_MEMORY: "the KV memory of those it has is nearly full",
    Why.FIRST_TOKEN: "first tokens come later than they were promised",
    Why.WAKING: "it was asleep and is asked for",
    Why.IDLE: "nobody asks for it",
    Why.GATHERING: "too little waits for a start",
    Why.COOLING: "more than is needed is kept until that has been so for long enough",
    Why.MINIMUM: "that is the fewest it may have",
    Why.MAXIMUM: "that is the most it may have",
    Why.CLAIMED: "somebody within its guarantee waits for GPUs that serve borrowers here",
    Why.HOST_SHORT: "GPUs would not help: the CPU, memory or network of the nodes is what is short",
}


def scaling(why: str) -> str:
    """Why a model should have the replicas that it should have, as a clause. One that is no `Why` stands for itself."""
    return WHYS[Why(why)] if why in WHYS else why


def cause(wait: Wait) -> Words:
    """A cause in words."""
    text, nobody, advice = CAUSES[wait.cause]
    return Words(text.format(wait.name or nobody), advice)


def refusal(reason: str) -> Words:
    """The reason of a refusal in words. One that is no `Reason` (a newer version wrote it) stands for itself."""
    return REASONS[Reason(reason)] if reason in REASONS else Words(reason or "the reason is not known", "")


def parts(waits: Iterable[Wait]) -> tuple[WaitPart, ...]:
    """The wait by cause and name, the longest first, as first seen among equals; nothing of no length."""
    sums: dict[tuple[Cause, str], int] = {}
    for wait in waits:
        key = wait.cause, wait.name
        sums[key] = sums.get(key, 0) + wait.ns
    longest_first = sorted(((ns, key) for key, ns in sums.items() if ns > 0), key=lambda item: -item[0])
    found = (Wait(*key, ns) for ns, key in longest_first)
    return tuple(WaitPart(wait.cause, wait.name, wait.ns, *cause(wait)) for wait in found)


def sentence(wait_ns: int, waits: Iterable[Wait]) -> str:
    """How long it waited and for what, the longest first: `4.1 s: loan to support due 3.2 s, ... 0.9 s`.

    A single cause that is all of it has no time of its own. Without causes it is the time alone.
    """
    found = parts(waits)
    if not found:
        return duration(wait_ns)
    if len(found) == 1 and duration(found[0].ns) == duration(wait_ns):
        return f"{duration(wait_ns)}: {found[0].text}"
    shown = [f"{part.text} {duration(part.ns)}" for part in found[:PARTS_SHOWN]]
    if len(found) > PARTS_SHOWN:
        shown.append(f"{len(found) - PARTS_SHOWN} more")
    return f"{duration(wait_ns)}: {', '.join(shown)}"


def header(wait_ns: int, waits: Iterable[Wait]) -> str:
    """The value of `x-commonpool-wait`: `4.123s; loan_due=support 3.200s; own_queue 0.923s`.

    The whole wait, then its longest parts of a millisecond and more: cause, `=name` where it is about somebody, time.
    Every time is in seconds, cut to milliseconds.
    """
    value = _seconds(wait_ns)
    for part in parts(waits)[:PARTS_SHOWN]:
        if part.ns >= _NS_PER_MS:
            about = f"={part.name}" if part.name else ""
            value += f"; {part.cause.value}{about} {_seconds(part.ns)}"
    return value


def live(waits: Iterable[Wait] | None) -> str:
    """What a request does now: it waits, for this so far, or it runs (None)."""
    if waits is None:
        return "running"
    so_far = tuple(waits)
    return f"waiting for {sentence(sum(wait.ns for wait in so_far), so_far)}"


def ended(record: UsageRecord) -> str:  # noqa: PLR0911 - one for each outcome
    """What became of an attempt."""
    match record.outcome:
        case Outcome.COMPLETED if record.reason == RECALLED:
            return "completed, with what its tenant was answered before"
        case Outcome.COMPLETED:
            return "completed"
        case Outcome.CANCELLED if record.reason:
            return f"ended, {refusal(record.reason).text}"
        case Outcome.CANCELLED:
            return "cancelled, its client went away"
        case Outcome.FAILED if record.reason == STOPPED:
            return "ended with the product, which was stopped"
        case Outcome.FAILED:
            return f"failed with status {record.status}"
        case Outcome.REFUSED:
            return f"refused, {refusal(record.reason).text}"
        case Outcome.RUNNING:
            return "running"


def attempt(record: UsageRecord) -> str:
    """What became of an attempt, and what it waited for."""
    said = ended(record)
    waited = sentence(record.wait_ns, record.waits)
    return f"{said}; waited {waited}" if record.wait_ns else f"{said}; did not wait"


def duration(ns: int) -> str:
    """A length of time for people, rounded down: `0 s`, `<1 ms`, `420 ms`, `4.1 s`, `3 min 20 s`, `5 h 12 min`."""
    if 0 < ns < _NS_PER_MS:
        return "<1 ms"
    if 0 < ns < NS_PER_S:
        return f"{ns // _NS_PER_MS} ms"
    if ns < 120 * NS_PER_S:
        whole, tenth = divmod(ns // _NS_PER_TENTH, 10)
        return f"{whole}.{tenth} s" if tenth else f"{whole} s"
    minutes, seconds = divmod(ns // NS_PER_S, 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {seconds} s"


def _seconds(ns: int) -> str:
    whole, milliseconds = divmod(ns // _NS_PER_MS, 1000)
    return f"{whole}.{milliseconds:03d}s"
