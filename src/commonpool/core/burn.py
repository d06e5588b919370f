"""How fast the error budget of a promise burns: the share of requests that were late, over the share that may be.

At 1 the budget is spent exactly when its time is over; at 14.4 a month's budget is gone within two days. A rule looks
at a long time, so that a few late requests alarm nobody, and at a short one, so that it is over when the trouble is
(Google, "The Site Reliability Workbook", chapter 5, whose times and rates these are).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.waits import Judged, Spread

OBJECTIVE_PERMILLE: Final = 990  # of those that were promised something are to get it
SHORTEST_NS: Final = 300 * NS_PER_S
OVER_NS: Final = (SHORTEST_NS, 1800 * NS_PER_S, NS_PER_HOUR, 6 * NS_PER_HOUR, 72 * NS_PER_HOUR)

PromiseName = Literal["queue", "first_token"]


class Kept(msgspec.Struct, frozen=True):
    """How many requests were promised something and show whether they got it, and how many of them were late."""

    promised: int = 0
    late: int = 0


class Burn(msgspec.Struct, frozen=True):
    """The last `over_ns` of a promise. `rate` is None where nothing was promised in it."""

    over_ns: int
    promised: int
    late: int
    rate: float | None


class Rule(msgspec.Struct, frozen=True):
    """When somebody is to know: the rate is reached both over a long and over a short time."""

    severity: Literal["page", "ticket"]
    rate: float
    long_ns: int
    short_ns: int


class Promise(msgspec.Struct, frozen=True):
    """One promise of one tenant and tier, now: the tier's `queue_target` or `first_token_target`.

    `target_ns` None: the tier promises nothing of this, and `burns` is empty. `spread` is of the last hour, `burns` of
    the times of OVER_NS. `burning` is the most urgent rule that says that somebody is to know.
    """

    tenant: str
    tier: str
    name: PromiseName
    target_ns: int | None
    spread: Spread
    burns: tuple[Burn, ...] = ()
    burning: Rule | None = None


# The most urgent first.
RULES: Final = (
    Rule("page", 14.4, OVER_NS[2], OVER_NS[0]),
    Rule("page", 6.0, OVER_NS[3], OVER_NS[1]),
    Rule("ticket", 1.0, OVER_NS[4], OVER_NS[3]),
)


def kept(judged: Judged, name: PromiseName) -> Kept:
    """One of the two promises."""
    if name == "queue":
        return Kept(judged.queue_promised, judged.queue_late)
    return Kept(judged.first_token_promised, judged.first_token_late)


def rate(known: Kept, objective_permille: int = OBJECTIVE_PERMILLE) -> float | None:
    """How many times faster than allowed it burns; None where nothing was promised. The objective is below 1000."""
    if not known.promised:
        return None
    return 1000 * known.late / (known.promised * (1000 - objective_permille))


def promise(
    tenant: str,
    tier: str,
    name: PromiseName,
    target_ns: int | None,
    spread: Spread,
    judged: Mapping[int, Judged],
) -> Promise:
    """A promise of which this was judged over each time of OVER_NS; where one is missing there was nothing."""
    if target_ns is None:
        return Promise(tenant, tier, name, None, spread)
    burns = tuple(_burn(over_ns, kept(judged.get(over_ns, Judged()), name)) for over_ns in OVER_NS)
    return Promise(tenant, tier, name, target_ns, spread, burns, burning(burns))


def burning(burns: Sequence[Burn]) -> Rule | None:
    """The most urgent rule whose rate is reached over both its times."""
    rates = {each.over_ns: each.rate or 0.0 for each in burns}
    for rule in RULES:
        if min(rates.get(rule.long_ns, 0.0), rates.get(rule.short_ns, 0.0)) >= rule.rate:
            return rule
    return None


def _burn(over_ns: int, known: Kept) -> Burn:
    return Burn(over_ns, known.promised, known.late, rate(known))
