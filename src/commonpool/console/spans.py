"""For how long a page looks back, curves over that time, and pages of a list: what several pages need of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar
from urllib.parse import urlencode

import msgspec

from commonpool.api.wire.waits import WaitRow
from commonpool.console.frame import View
from commonpool.core.model import NS_PER_HOUR, NS_PER_S

DAY_NS: Final = 24 * NS_PER_HOUR
CURVES_MAX: Final = 4  # lines that can be told apart in a small chart

T = TypeVar("T")


class Span(msgspec.Struct, frozen=True):
    """The last so long, and the `step` at which a curve over it has a point."""

    name: str
    length_ns: int
    step: Literal["window", "hour", "day"]


SPANS: Final = (
    Span("6h", 6 * NS_PER_HOUR, "window"),
    Span("24h", DAY_NS, "hour"),
    Span("7d", 7 * DAY_NS, "hour"),
    Span("30d", 30 * DAY_NS, "day"),
)


class Curves(msgspec.Struct, frozen=True):
    """Values over time: `at` in seconds since the epoch, and by name a value for each of them, None for a gap."""

    at: Sequence[int]
    series: Sequence[tuple[str, Sequence[float | None]]]


class Part(msgspec.Struct, frozen=True):
    """What is on one page of a list: `rows` of `count`, and the addresses of the pages beside it, "" for none."""

    rows: Sequence[object]
    count: int
    before: str
    after: str


def span(view: View, usual: str = "24h") -> Span:
    """What the address asks for in `range`, else the usual one."""
    asked = {each.name: each for each in SPANS}
    return asked.get(view.query.get("range", ""), asked[usual])


def curves(rows: Iterable[WaitRow]) -> Curves:
    """p99 of the wait in seconds over time, of rows whose group is (name, time); of the names with most requests."""
    found: dict[str, dict[int, float | None]] = {}
    counts: dict[str, int] = {}
    times: set[int] = set()
    for row in rows:
        if row.start_ns is None:
            continue
        name, at = row.group[0], row.start_ns // NS_PER_S
        times.add(at)
        counts[name] = counts.get(name, 0) + row.wait.count
        p99_ns = row.wait.p99_ns
        found.setdefault(name, {})[at] = None if p99_ns is None else round(p99_ns / NS_PER_S, 3)
    at_s = sorted(times)
    names = sorted(found, key=lambda name: (-counts[name], name))[:CURVES_MAX]
    return Curves(at_s, [(name, [found[name].get(at) for at in at_s]) for name in names])


def address(view: View, **changes: str | None) -> str:
    """The address of the page itself with other parameters; None and "" take one out."""
    query: Mapping[str, str | None] = {**view.query, "said": None, **changes}
    given = {name: value for name, value in query.items() if value}
    return view.address + (f"?{urlencode(given)}" if given else "")


def part(view: View, rows: Sequence[T], size: int) -> Part:
    """The page of a list that `page` of the address names, counted from 1."""
    asked = view.query.get("page", "")
    last = max(1, -(-len(rows) // size))
    number = min(int(asked), last) if asked.isascii() and asked.isdecimal() and len(asked) < len("10000") else 1
    number = max(1, number)
    return Part(
        rows[(number - 1) * size : number * size],
        len(rows),
        address(view, page=str(number - 1) if number > 2 else None) if number > 1 else "",  # noqa: PLR2004 - the first has no number
        address(view, page=str(number + 1)) if number < last else "",
    )
