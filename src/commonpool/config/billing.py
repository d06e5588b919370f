"""Money in the configuration: what must hold of prices and shared costs, their structs, and how people write them."""

from datetime import date

from commonpool.config.billing_keys import FEES
from commonpool.config.calendar import Calendar
from commonpool.config.problems import KeyPath, Report, hint, quote
from commonpool.config.quantities import format_duration, format_money, format_permille
from commonpool.config.shape import Values
from commonpool.config.structs import Billing, Config, Steps
from commonpool.core.billing import SharedCost
from commonpool.core.ledger import Rates
from commonpool.core.model import UNPRICED, Lending, Price

_HOURS = 24


def rates(config: Config, pool: str, hour_ns: int) -> Rates:
    """What is in force in the hour that begins then; UNPRICED where no price is. A meter without any is left out."""
    billing = config.billing
    price = config.policy.prices[pool].at(hour_ns) if pool in config.policy.prices else UNPRICED
    lending = billing.lending.get(pool, Lending(pool))
    return Rates(
        micro_per_gpu_hour=price,
        lending_micro_per_gpu_hour=lending.micro(price, Calendar(billing.time_zone).local_hour(hour_ns)),
        meters={meter: Price(meter, UNPRICED, steps).at(hour_ns) for meter, steps in billing.meters.items()},
    )


def unpriced(config: Config, now_ns: int) -> tuple[str, ...]:
    """A sentence for each price that is missing in the hour that goes on: the books of that hour cannot be closed."""
    calendar = Calendar(config.billing.time_zone)
    hour_ns = calendar.hour_of(now_ns)
    every = {f"prices.gpu_hour.{pool}": config.policy.prices[pool] for pool in config.policy.pools}
    every |= {f"prices.meters.{name}": Price(name, UNPRICED, steps) for name, steps in config.billing.meters.items()}
    return tuple(
        f"{key} has no price now, its first holds from {calendar.day_of(price.later[0][0])} on: the books stop with"
        " this hour until one is added that holds from now on, or earlier."
        for key, price in every.items()
        if price.at(hour_ns) == UNPRICED
    )


def check_billing(values: Values, report: Report) -> None:
    """Prices follow one another, hours have one rate, and costs are about pools and times that there are.

    Every pool has a price: an unknown one would be a free GPU.
    """
    prices = values.get("prices", {})
    for key in ("gpu_hour", "meters"):
        for name, steps in prices.get(key, {}).items():
            if isinstance(steps, list):
                _ascending(steps, ("prices", key, name), report)
    for pool, rate in prices.get("lending", {}).items():
        if isinstance(rate, dict):
            _apart(list(rate.get("hours", {})), ("prices", "lending", pool, "hours"), report)
    priced = prices.get("gpu_hour")
    for pool in values.get("pools", {}) if priced is not None else ():
        at = ("prices", "gpu_hour", pool)
        if pool not in priced and not report.is_bad(at):
            report.fail(at, "is missing; write the price of one GPU for an hour, 0 where it is free")
    _costs(values, report)


def _ascending(steps: list[Values | None], path: KeyPath, report: Report) -> None:
    last: date | None = None
    for number, step in enumerate(steps):
        at = (*path, str(number), "from")
        day = None if step is None else step.get("from")
        if day is None:
            if number and step is not None and not report.is_bad(at):
                report.fail(at, "is missing; write the day from which this price holds: only the first may be without")
        elif last is not None and day <= last:
            report.fail(at, f"{day} is not after {last}, the day of the price before it; sort them by day", str(day))
        last = day or last


def _apart(hours: list[tuple[int, int]], path: KeyPath, report: Report) -> None:
    taken: dict[int, str] = {}
    for first, last in hours:
        name = f"{first}-{last}"
        for hour in range(first, last if first < last else last + _HOURS):
            other = taken.setdefault(hour % _HOURS, name)
            if other != name:
                report.fail(path, f"{name} and {other} are both about the hour from {hour % _HOURS}; part them", name)
                break


def _costs(values: Values, report: Report) -> None:
    seen: list[Values] = []
    for number, cost in enumerate(values.get("costs", [])):
        path = ("costs", str(number))
        pools, pool = values.get("pools"), (cost or {}).get("pool")
        if cost is None:
            continue
        if pool is not None and pools is not None and pool not in pools:
            report.fail((*path, "pool"), f"there is no pool {quote(pool)}; {hint(pool, pools, 'known')}", pool)
        priced = values.get("prices", {}).get("meters", {})
        if cost.get("split") in FEES and cost["split"] not in priced and report.is_sound(("prices", "meters")):
            sentence = f"{cost['split']} has no price, so it is not metered; write one under prices.meters, if only 0"
            report.fail((*path, "split"), sentence, cost["split"])
        if "from" in cost and "until" in cost and cost["from"] >= cost["until"]:
            sentence = f"{cost['until']} is not after from ({cost['from']}); until is the first day without it"
            report.fail((*path, "until"), sentence, str(cost["until"]))
        same = [each for each in seen if (each.get("name"), each.get("pool")) == (cost.get("name"), pool)]
        if "name" in cost and any(_overlap(cost, each) for each in same):
            sentence = "is there twice for the same days, and would be charged twice; end one before the other begins"
            report.fail((*path, "name"), sentence, cost["name"])
        seen.append(cost)


def _overlap(one: Values, other: Values) -> bool:
    return all(a.get("from", date.min) < b.get("until", date.max) for a, b in ((one, other), (other, one)))


def prices(values: Values) -> dict[str, Price]:
    """The prices of GPU time, by pool."""
    calendar = Calendar(values["prices"]["time_zone"])
    built = {}
    for pool, written in values["prices"]["gpu_hour"].items():
        steps = _steps(written, calendar)
        # What holds since ever is the first; a list that begins with a day has no price before.
        built[pool] = Price(pool, UNPRICED, steps) if steps[0][0] else Price(pool, steps[0][1], steps[1:])
    return built


def billing(values: Values) -> Billing:
    """Everything else that bills are made by."""
    said = values["prices"]
    calendar = Calendar(said["time_zone"])
    return Billing(
        time_zone=said["time_zone"],
        lending={pool: _lending(pool, rate) for pool, rate in said.get("lending", {}).items()},
        meters={meter: _steps(written, calendar) for meter, written in said["meters"].items()},
        costs=tuple(_cost(cost, calendar) for cost in values.get("costs", [])),
        retention_ns=values["retention"],
    )


def _steps(written: int | list[Values], calendar: Calendar) -> Steps:
    if isinstance(written, int):
        return ((0, written),)
    return tuple((calendar.begins(step["from"]) if "from" in step else 0, step["price"]) for step in written)


def _lending(pool: str, rate: int | Values) -> Lending:
    if isinstance(rate, int):
        return Lending(pool, rate)
    return Lending(pool, rate["rate"], tuple((*hours, part) for hours, part in rate.get("hours", {}).items()))


def _cost(cost: Values, calendar: Calendar) -> SharedCost:
    return SharedCost(
        name=cost["name"],
        layer=cost["layer"],
        micro_per_month=cost["month"],
        split=cost["split"],
        pool=cost.get("pool"),
        start_ns=calendar.begins(cost["from"]) if "from" in cost else None,
        until_ns=calendar.begins(cost["until"]) if "until" in cost else None,
    )


def describe_billing(config: Config) -> dict[KeyPath, str | None]:
    """Every setting of it under its key, as people write it."""
    made = config.billing
    calendar = Calendar(made.time_zone)
    said: dict[KeyPath, str | None] = {
        ("prices", "currency"): config.currency,
        ("prices", "time_zone"): made.time_zone,
        ("retention",): format_duration(made.retention_ns),
    }
    for pool, price in config.policy.prices.items():
        since_ever = () if price.micro_per_gpu_hour == UNPRICED else ((0, price.micro_per_gpu_hour),)
        said["prices", "gpu_hour", pool] = _written(since_ever + price.later, calendar)
    for pool, lending in made.lending.items():
        hours = [f"{first}-{last}: {format_permille(part)}" for first, last, part in lending.hours]
        said["prices", "lending", pool] = ", ".join([format_permille(lending.permille), *hours])
    for meter, steps in made.meters.items():
        said["prices", "meters", meter] = _written(steps, calendar)
    for cost in made.costs:
        # One name may be there for several pools, and again with another amount after its end.
        texts = (said.get(("costs", cost.name)), _cost_written(cost, calendar))
        said["costs", cost.name] = "; ".join(filter(None, texts))
    return said


def _written(steps: Steps, calendar: Calendar) -> str:
    return ", ".join(
        f"{format_money(micro)} from {calendar.day_of(from_ns)}" if from_ns else format_money(micro)
        for from_ns, micro in steps
    )


def _cost_written(cost: SharedCost, calendar: Calendar) -> str:
    parts = [f"{format_money(cost.micro_per_month)} a month", f"layer {cost.layer}", f"split {cost.split}"]
    parts += [f"pool {cost.pool}"] if cost.pool is not None else []
    parts += [f"from {calendar.day_of(cost.start_ns)}"] if cost.start_ns is not None else []
    parts += [f"until {calendar.day_of(cost.until_ns)}"] if cost.until_ns is not None else []
    return ", ".join(parts)
