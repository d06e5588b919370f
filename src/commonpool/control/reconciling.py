"""A closed hour against what there was: capacity × time, what the core gave out, and what the backends saw."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from commonpool.core import closing
from commonpool.core.ledger import Hour, Phase, Posting, Span
from commonpool.core.model import NS_PER_S
from commonpool.store.ledger import BEFORE, DOWN, LAGS, UNKNOWN, UNSEEN, Reconciliation

# Between the core's word and the backend's deed; a replica's start waits for others on its node besides.
LAG_NS: Final = 5 * NS_PER_S

Length = tuple[int, int]


class Comparison(msgspec.Struct, frozen=True):
    """A reconciliation, and the ids of what differs by more than LAG_NS while somebody kept the books."""

    reconciliation: Reconciliation
    odd: tuple[str, ...]


def compare(hour: Hour, postings: tuple[Posting, ...]) -> Comparison:
    """Compare an hour's books with what its spans say."""
    unkept = _unkept(hour)
    causes = dict.fromkeys((LAGS, DOWN, BEFORE, UNSEEN, UNKNOWN), 0)
    odd = []
    total = {True: 0, False: 0}
    for name, spans in _by_id(hour.spans).items():
        held = [span for span in spans if span.phase is not Phase.HELD]
        reported = [span for span in spans if span.phase is Phase.HELD]
        total[True] += _use(held)
        total[False] += _use(reported)
        difference = _use(held) - _use(reported)
        for cause, gaps in unkept.items():
            part = _within(held, gaps) - _within(reported, gaps)
            causes[cause] += part
            difference -= part
        lags = abs(difference) <= LAG_NS * max(span.milli_gpu for span in spans)  # as where one began as the hour ended
        causes[LAGS if lags or (held and reported) else UNSEEN if held else UNKNOWN] += difference
        if not lags:
            odd.append(name)
    return Comparison(
        Reconciliation(
            pool=hour.pool,
            hour_ns=hour.start_ns,
            devices=closing.devices(hour),
            charged=closing.charged(postings),
            rates=hour.rates,
            held=total[True],
            reported=total[False],
            causes={cause: part for cause, part in causes.items() if part},
        ),
        tuple(odd),
    )


def _by_id(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.id, []).append(span)
    return found


def _use(spans: Iterable[Span]) -> int:
    return sum(span.milli_gpu * (span.end_ns - span.start_ns) for span in spans)


def _within(spans: Iterable[Span], lengths: Sequence[Length]) -> int:
    """The same, of what lies within these lengths of time."""
    return sum(
        span.milli_gpu * max(0, min(span.end_ns, end) - max(span.start_ns, start))
        for span in spans
        for start, end in lengths
    )


def _unkept(hour: Hour) -> dict[str, list[Length]]:
    """When nobody kept the books, by why."""
    gaps: dict[str, list[Length]] = {BEFORE: [], DOWN: []}
    first = BEFORE if hour.before is None else DOWN
    until = hour.start_ns
    for standing in sorted(hour.standings, key=lambda each: each.start_ns):
        if standing.start_ns > until:
            gaps[first if until == hour.start_ns else DOWN].append((until, standing.start_ns))
        until = max(until, standing.end_ns)
    if until < hour.end_ns:
        gaps[first if until == hour.start_ns else DOWN].append((until, hour.end_ns))
    return gaps
