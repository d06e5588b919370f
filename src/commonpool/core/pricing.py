"""Money: from GPU time to a bill that adds up.

An exact cost is an integer number of `1 / COST_UNIT` micro-units of the billing currency, so sums of any length are
exact. It is rounded once, where a line is printed, by largest remainder: the lines of a table always add up to its
total, and two tables over the same records have the same total.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from commonpool.core.model import NS_PER_HOUR, UNPRICED, Outcome, UsageRecord

COST_UNIT = 1000 * NS_PER_HOUR  # milli_gpu_ns in one GPU-hour
# What is charged. A member of an enum costs more to look up than all the rest of the function.
_COMPLETED: Final = Outcome.COMPLETED
_CANCELLED: Final = Outcome.CANCELLED
_RUNNING: Final = Outcome.RUNNING
K = TypeVar("K", bound="str | tuple[str, ...]")


def charged_price(outcome: Outcome, micro_per_gpu_hour: int, exited: bool = False) -> int:
    """The price at which an attempt's GPU time is charged to its tenant: the settlement table of docs/billing.md.

    What was produced is paid for, also when the client left before its end. What an engine failed at, or refused, is
    not, however long it took; the next attempt is a charge of its own. What still runs is charged until it turns out
    otherwise. `exited`: a job's own command ended it, well or badly, or with its state saved; that is paid for.
    """
    charged = exited or outcome is _COMPLETED or outcome is _CANCELLED or outcome is _RUNNING
    return micro_per_gpu_hour if charged else 0


def is_charged(record: UsageRecord) -> bool:
    """Whether an attempt's GPU time is its tenant's to pay, be it at a price of 0: as `charged_price` decided."""
    return record.micro_per_gpu_hour != 0 or charged_price(record.outcome, 1) != 0


def exact_cost(milli_gpu_ns: int, micro_per_gpu_hour: int) -> int:
    """The cost of this much use at this price, in `1 / COST_UNIT` micro-units; exact. UNPRICED use costs nothing."""
    return 0 if micro_per_gpu_hour == UNPRICED else milli_gpu_ns * micro_per_gpu_hour


def round_half_up(exact: int, unit: int = COST_UNIT) -> int:
    """`exact / unit` to the nearest integer; a half goes up. A table's total is rounded so."""
    return (2 * exact + unit) // (2 * unit)


def round_lines(exact: Mapping[K, int], unit: int = COST_UNIT) -> dict[K, int]:
    """Each line of `exact / unit` as an integer, such that they sum to `round_half_up` of the whole.

    Largest remainder: every line gets its floor, and what is then missing from the total goes, one each, to the lines
    with the largest remainders, ties by name. So no line is off by one or more, and what is exact stays.
    """
    lines = {name: value // unit for name, value in exact.items()}
    missing = round_half_up(sum(exact.values()), unit) - sum(lines.values())
    by_remainder = sorted(exact, key=lambda name: (-(exact[name] % unit), name))
    for name in by_remainder[:missing]:
        lines[name] += 1
    return lines
