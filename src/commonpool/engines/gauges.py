"""What an engine says of itself on its metrics page: how much it runs, how much waits in it, how full its KV cache is.

It is shown to people and compared with what was sent; nothing is decided by it. What the core counts itself is exact
and there at once, and a page like this is late, and may show what was.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from commonpool.engines.base import MetricNames

MILLI: Final = 1000
# Labels of the parts of one copy of a model: each of them shows the same requests.
SHARDS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
LINES_MAX: Final = 1000  # of the names that are read
VALUE_MAX: Final = 2**53  # no engine counts so far, and every whole number up to it is one as a float, too


class Gauges(msgspec.Struct, frozen=True):
    """Sequences that run and that wait in the engine, the use of its KV cache in thousandths, and how much it has done.

    `work` is in the engine's own unit and grows. None where it does not say so.
    """

    running: int
    waiting: int | None = None
    kv_milli: int | None = None
    work: float | None = None


def read(page: bytes, names: MetricNames) -> Gauges | None:
    """What a page in Prometheus' text format says; None where it does not say what runs.

    Only the lines with these names are parsed, of thousands: 0.5 ms for a page of 100 KB.
    """
    known = tuple(name.encode() for group in msgspec.structs.astuple(names) for name in group)
    lines = [line for line in page.splitlines() if line.startswith(known)]
    if len(lines) > LINES_MAX:
        return None
    try:
        text = b"\n".join([*lines, b""]).decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError:
        return None
    running = _first(samples, names.running, sum)
    if running is None:
        return None
    waiting, kv_use = _first(samples, names.waiting, sum), _first(samples, names.kv_use, max)
    return Gauges(
        running=round(running),
        waiting=None if waiting is None else round(waiting),
        kv_milli=None if kv_use is None else min(MILLI, round(kv_use * MILLI)),
        work=_first(samples, names.work, sum),
    )


def _first(samples: list[Sample], names: tuple[str, ...], together: Callable[[Iterable[float]], float]) -> float | None:
    """The value of the first of these names that has one, of all copies of the model together."""
    for name in names:
        copies: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in samples:
            if sample.name == name:
                copy = tuple(sorted((key, value) for key, value in sample.labels.items() if key not in SHARDS))
                copies[copy] = max(copies.get(copy, sample.value), sample.value)
        if copies:
            value = together(copies.values())
            return value if 0 <= value <= VALUE_MAX else None
    return None
