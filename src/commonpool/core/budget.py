"""Budgets: what a tenant may spend in a billing period, decided before anything is taken in.

A budget is compared with two amounts. *Spent* is what the books say up to a time, and what was used after that and has
ended. *Held* is what all that is open is expected to cost: each thing holds its estimate from when it is taken in until
its end, so that many that come at once cannot spend the same money. Estimates may be wrong, so what is spent may come
to more than the budget by as much; nothing that runs is interrupted for that.

Amounts are exact costs, in 1 / COST_UNIT micro-units (`pricing`). When a period ends is told (`Spent`); nothing here
knows a calendar.
"""

from typing import Final

from commonpool.core.explain import duration
from commonpool.core.ledger import hour_of
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Budget, Price
from commonpool.core.pricing import COST_UNIT, exact_cost, round_half_up

# What a token of service is taken to last at a site where nothing has ended yet: 100 a second for each sequence.
UNKNOWN_PACE_NS: Final = NS_PER_S // 100
# How many hours are kept apart: so far the books may lag behind before what was used meanwhile is taken for theirs.
HOURS_MAX: Final = 72
_MICRO: Final = 1_000_000
_PERCENT: Final = 100


class Spending:
    """What one tenant has spent in this period, and what is held for what is open.

    `limit` is its budget, None where it has none; once `soft` is spent, people are warned. `until` is when the period
    ends, a time that may have passed; 0 where that is not known.
    """

    __slots__ = (
        "_booked",
        "_booked_until",
        "_hours",
        "_offset_ns",
        "_price",
        "held",
        "limit",
        "soft",
        "until",
    )

    def __init__(self) -> None:
        self.limit: int | None = None
        self.soft = 0
        self.held = 0
        self.until = 0
        self._price: Price | None = None
        self._offset_ns = 0
        self._booked = 0  # spent in this period, by what the books say
        self._booked_until = 0  # and up to when they say it
        self._hours: dict[int, int] = {}  # what was used after that, by the hour, since the books close by the hour

    def configure(self, budget: Budget | None, price: Price | None, offset_ns: int) -> None:
        """Take over a tenant's budget, its pool's price and the grid of hours. What is spent and held stays."""
        self.limit = None if budget is None else budget.micro * COST_UNIT
        self.soft = 0 if budget is None else budget.micro * COST_UNIT * budget.soft_percent // _PERCENT
        self._price = price
        self._offset_ns = offset_ns

    def cost(self, milli_gpu_ns: int, now: int) -> int:
        """What so much use costs at the price of now; 0 where there is none."""
        price = self._price
        return 0 if price is None else exact_cost(milli_gpu_ns, max(0, price.at(now)))

    def spent(self, now: int) -> int:
        """What is spent in the period of now."""
        if 0 < self.until <= now:  # a new one has begun, of which the books say nothing yet
            self._begin(0, self.until, 0)
        return self._booked + sum(self._hours.values())

    def told(self, micro: int, booked_until: int, until: int, now: int) -> None:
        """The books say what was spent in the period that ends at `until`, of all up to `booked_until`.

        That replaces what was known of the time before; what is known of the time after stays. Nothing is taken over of
        a period that is over, nor of a time before that of the last.
        """
        self.spent(now)
        if until > now and booked_until >= self._booked_until:
            self._begin(micro * COST_UNIT, min(booked_until, now), until)

    def charge(self, milli_gpu: int, start: int, end: int, micro: int) -> None:
        """An attempt that ended has used so much from `start` to `end`, at this price of a GPU-hour."""
        at = max(start, self._booked_until)
        while at < end:
            hour = hour_of(at, self._offset_ns)
            upto = min(end, hour + NS_PER_HOUR)
            since = max(hour, self._booked_until)
            self._hours[since] = self._hours.get(since, 0) + exact_cost(milli_gpu * (upto - at), micro)
            at = upto
            if len(self._hours) > HOURS_MAX:
                self._booked += self._hours.pop(min(self._hours))

    def rest(self, milli_gpu: int, start: int, expected_ns: int, now: int) -> int:
        """What is to be held for what began at `start`, beyond what the books know of it already."""
        known_ns = max(0, self._booked_until - start)
        return self.cost(milli_gpu * max(0, expected_ns - known_ns), now)

    def refusal(self, tenant: str, estimate: int, now: int) -> str | None:
        """A sentence where something that is expected to cost this may not be taken in any more."""
        limit = self.limit
        if limit is None:
            return None
        spent = self.spent(now)
        if spent < limit and (not estimate or spent + self.held + estimate <= limit):
            return None
        advice = f"Wait for the period's end, in {duration(self.until - now)}, or have" if self.until else "Have"
        return (
            f"Tenant {tenant} has spent {amount(spent)} of its budget of {amount(limit)}; {amount(self.held)} more is "
            f"held for what is open, and this would take {amount(estimate)}. {advice} the budget raised."
        )

    def _begin(self, booked: int, booked_until: int, until: int) -> None:
        self._booked, self._booked_until, self.until = booked, booked_until, until
        self._hours = {since: cost for since, cost in self._hours.items() if since >= booked_until}


def amount(exact: int) -> str:
    """An exact cost for people, in whole units of the billing currency: two decimals, more where they are needed."""
    micro = round_half_up(exact)
    sign, micro = ("-", -micro) if micro < 0 else ("", micro)
    whole, part = divmod(micro, _MICRO)
    text = f"{part:06d}".rstrip("0")
    return f"{sign}{whole}.{text:0<2}"
