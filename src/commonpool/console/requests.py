"""Requests and jobs that have ended, by what they were, and each down to its waits, its replica and its money."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.bill import RequestPostings
from commonpool.api.wire.requests import Records, RequestTimeline, Step
from commonpool.console.frame import Page, View, together
from commonpool.core.model import NS_PER_HOUR, Outcome

ROWS_MAX: Final = 50  # as in other lists: what a page costs is its rows
SPANS: Final = {"1h": NS_PER_HOUR, "24h": 24 * NS_PER_HOUR, "7d": 168 * NS_PER_HOUR, "30d": 720 * NS_PER_HOUR}
USUAL: Final = "24h"
OUTCOMES: Final = tuple(each.value for each in Outcome if each is not Outcome.RUNNING)
FILTERS: Final = ("tenant", "app", "model", "tier", "endpoint", "outcome", "reason")
OPEN: Final = frozenset({"waiting", "running"})


class Piece(msgspec.Struct, frozen=True):
    """A part of a request's time: `kind` is queued, first_token (until it came) or answer."""

    kind: str
    start_ns: int
    ns: int


class Bar(msgspec.Struct, frozen=True):
    """One attempt in the whole time of its request, in order."""

    attempt: int
    pieces: tuple[Piece, ...]


def bars(timeline: RequestTimeline) -> list[Bar]:
    """What each attempt that took some did with its time; what has not ended goes on until now."""
    by_attempt: dict[int, list[Step]] = {}
    for step in timeline.steps:
        if step.what != "arrived":
            by_attempt.setdefault(step.attempt, []).append(step)
    last = max(by_attempt, default=0)
    found = []
    for attempt, steps in by_attempt.items():
        until_ns = timeline.now_ns if attempt == last and timeline.state in OPEN else steps[-1].at_ns
        if pieces := tuple(_pieces(steps, until_ns)):
            found.append(Bar(attempt, pieces))
    return found


def _pieces(steps: Sequence[Step], until_ns: int) -> Iterator[Piece]:
    came = any(step.what == "first_token" for step in steps)
    kinds = {"queued": "queued", "dispatched": "first_token" if came else "answer", "first_token": "answer"}
    for step, after in zip(steps, [*(each.at_ns for each in steps[1:]), until_ns], strict=True):
        if step.what in kinds and after > step.at_ns:
            yield Piece(kinds[step.what], step.at_ns, after - step.at_ns)


def lengths(bars_: Sequence[Bar]) -> dict[str, int]:
    """How long each kind of piece took, all attempts together."""
    sums: dict[str, int] = {}
    for bar in bars_:
        for piece in bar.pieces:
            sums[piece.kind] = sums.get(piece.kind, 0) + piece.ns
    return sums


def until(timeline: RequestTimeline) -> int:
    """Where the bars end: the end of the last step, or now."""
    last = max((step.at_ns for step in timeline.steps), default=timeline.arrived_ns)
    return max(last, timeline.now_ns) if timeline.state in OPEN else last


async def show(view: View) -> Response:
    if wanted := view.query.get("id", "").strip():
        return view.go(f"/requests/{quote(wanted, safe='')}")
    span = view.query.get("span", USUAL)
    since_ns = max(0, view.now_ns - SPANS.get(span, SPANS[USUAL]))
    kept = {name: view.query.get(name) for name in FILTERS}
    records = await view.get(
        "/admin/v1/records",
        Records,
        newest="true",
        limit=ROWS_MAX,
        since_ns=since_ns,
        after=view.query.get("after"),
        **kept,
    )
    return view.render(
        "requests.html",
        records=records.records,
        spans=tuple(SPANS),
        span=span if span in SPANS else USUAL,
        outcomes=OUTCOMES,
        filtered={name: value for name, value in kept.items() if value},
        more=_address(view.query, after=records.after) if records.after else "",
        looked_ns=records.looked_ns,
    )


def _address(query: Mapping[str, str], **changed: str) -> str:
    return "/requests?" + urlencode(
        {name: value for name, value in query.items() if value and name != "said"} | changed
    )


async def one(view: View) -> Response:
    path = f"/admin/v1/requests/{view.path['id']}"
    timeline = await view.get(f"{path}/timeline", RequestTimeline)
    (postings,) = await together(view.attempt(f"{path}/postings", RequestPostings))
    drawn = bars(timeline)
    return view.render(
        "request.html",
        timeline=timeline,
        is_open=timeline.state in OPEN,
        bars=drawn,
        lengths=lengths(drawn),
        whole_ns=max(1, until(timeline) - timeline.arrived_ns),
        postings=postings,
    )


PAGES = (
    Page("/requests", "requests", show, needs=(Permission.READ_USAGE,), group="work", key="r"),
    Page("/requests/{id}", "request", one, needs=(Permission.READ_REQUESTS,)),
)
