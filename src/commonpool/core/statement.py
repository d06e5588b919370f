"""Statements: the bills of days at their finest, to be added up by whatever a reader asks for.

A day is rounded once, at its finest, and every table is a sum of those lines. So a tenant's bill is the same to
the unit whether it is asked for by app, by model or by day.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from commonpool.core.billing import Bill, BillLine, SharedCost, combined
from commonpool.core.ledger import PLATFORM, tenant_account

# The keys of a finest line. `correction` is "correction" in what is about a day before it, else "".
WORK: Final = ("app", "cost_center", "model", "version", "type", "tier", "endpoint", "pool")
CORRECTION: Final = "correction"
FINEST: Final = (*WORK, CORRECTION)
# What a bill can be filtered by and split by. `tenant` is who pays, `group` where that stands in the quota tree.
FILTERS: Final = ("tenant", "group", *WORK)
DIMENSIONS: Final = (*FILTERS, CORRECTION, "day")


class Statement(msgspec.Struct, frozen=True):
    """A month or a part of it: the bill of each day by FINEST, in order, and the groups that accounts were in.

    A group is a path from the root of the quota tree, `science/physics`; "" where an account is in none.
    """

    days: dict[str, Bill]
    groups: dict[str, str] = {}


def label(account: str) -> str:
    """How a bill calls an account: a tenant by its name, a group `group:NAME`, and `platform`.

    A tenant that is called platform is `tenant:platform`.
    """
    name = account.removeprefix(tenant_account(""))
    return account if name == PLATFORM else name


def fold(statements: Iterable[Statement], by: Sequence[str], filters: Mapping[str, Sequence[str]]) -> Bill:
    """The lines of these statements that the filters keep, added up by some of DIMENSIONS, sorted.

    A filter keeps what has one of its values; `group` keeps what is anywhere below one. The lines' keys are the values
    of `by`, and they have no account of their own.
    """
    wanted = {name: frozenset(values) for name, values in filters.items()}
    found: dict[tuple[str, ...], list[BillLine]] = {}
    costs: dict[SharedCost, None] = {}
    bounds: list[tuple[int, int]] = []
    for statement in statements:
        for day, bill in statement.days.items():
            bounds.append((bill.start_ns, bill.end_ns))
            costs.update(dict.fromkeys(bill.costs))
            for line in bill.lines:
                values = _values(line, statement.groups.get(line.account, ""), day)
                if _keeps(values, wanted):
                    found.setdefault(tuple(values[name] for name in by), []).append(line)
    lines = tuple(combined(found[keys], "", keys) for keys in sorted(found))
    start_ns, end_ns = (min(bounds)[0], max(bounds)[1]) if bounds else (0, 0)
    return Bill(start_ns, end_ns, tuple(by), lines, tuple(costs))


def added(tables: Iterable[Bill], by: Sequence[str]) -> Bill:
    """Tables of times that do not overlap, all by the same keys, as one: `fold` of their days together."""
    found: dict[tuple[str, ...], list[BillLine]] = {}
    costs: dict[SharedCost, None] = {}
    bounds: list[tuple[int, int]] = []
    for table in tables:
        if table.end_ns:
            bounds.append((table.start_ns, table.end_ns))
        costs.update(dict.fromkeys(table.costs))
        for line in table.lines:
            found.setdefault(line.keys, []).append(line)
    lines = tuple(combined(found[keys], "", keys) for keys in sorted(found))
    start_ns, end_ns = (min(bounds)[0], max(bounds)[1]) if bounds else (0, 0)
    return Bill(start_ns, end_ns, tuple(by), lines, tuple(costs))


def _values(line: BillLine, group: str, day: str) -> dict[str, str]:
    values = dict(zip(FINEST, line.keys, strict=True))
    values["tenant"] = label(line.account)
    values["group"] = group
    values["day"] = day
    return values


def _keeps(values: Mapping[str, str], wanted: Mapping[str, frozenset[str]]) -> bool:
    for name, allowed in wanted.items():
        if name == "group":
            if allowed.isdisjoint(values[name].split("/")):
                return False
        elif values[name] not in allowed:
            return False
    return True
