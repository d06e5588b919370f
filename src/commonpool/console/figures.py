"""Figures as the console shows them: numbers with their units, and moments in the reader's time zone. Pure."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from commonpool.api import text
from commonpool.core.model import NS_PER_S

NONE: Final = text.NONE
PARTS: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def gpus(milli_gpu: int | None) -> str:
    """`1.5 GPU`."""
    return NONE if milli_gpu is None else f"{text.gpus(milli_gpu)} GPU"


def gpu_hours(gpu_seconds: Decimal) -> str:
    """`12.3 GPU h`, `98.7 GPU s`: what is not zero is never shown as zero."""
    hours = gpu_seconds / 3600
    if not gpu_seconds or abs(hours) >= Decimal("0.1"):
        return f"{hours:,.1f} GPU h"
    return f"{gpu_seconds:,.1f} GPU s" if abs(gpu_seconds) >= Decimal("0.05") else "<0.1 GPU s"


def milli_gpu_hours(milli_gpu_ns: int) -> str:
    """The same for GPU thousandths × nanoseconds."""
    return gpu_hours(Decimal(milli_gpu_ns).scaleb(-12))


def duration(length_ns: int | None) -> str:
    """`0.42 s`, `3.5 min`, `2.1 h`, `3.0 d`: what is not zero is never shown as zero."""
    if length_ns is None:
        return NONE
    seconds = length_ns / NS_PER_S
    for enough, length, unit in ((172800, 86400, "d"), (7200, 3600, "h"), (120, 60, "min")):
        if seconds >= enough:
            return f"{seconds / length:,.1f} {unit}"
    return text.wait(length_ns)


def money(micro: int | None, currency: str) -> str:
    """`12.50 EUR`; small amounts keep as many places as they need, up to six."""
    if micro is None:
        return NONE
    places = 2 if abs(micro) >= 10**5 or not micro else 4 if abs(micro) >= 10**3 else 6
    return f"{Decimal(micro).scaleb(-6):,.{places}f} {currency}"


def per_million(micro: int, count: int) -> int | None:
    """What a million of them cost, of which so many cost this; of none nothing is known."""
    return micro * 10**6 // count if count else None


def amount(micro: int | None) -> str:
    """`12.50`: money in a column whose head says the currency."""
    return NONE if micro is None else money(micro, "").rstrip()


def count(value: int | None) -> str:
    """`12,345`."""
    return NONE if value is None else f"{value:,}"


def short(value: int | None) -> str:
    """`1.2 M`, `12.3 k`, `999`: three digits at least."""
    if value is None:
        return NONE
    for size, letter in PARTS:
        if abs(value) >= size:
            return f"{value / size:,.1f} {letter}"
    return str(value)


def percent(part: float, whole: float) -> str:
    """`12 %`; of nothing it is nothing known."""
    return f"{100 * part / whole:.0f} %" if whole else NONE


def times(factor: float | None) -> str:
    """`1.4×`."""
    return NONE if factor is None else f"{factor:.1f}×"


def moment(at_ns: int | None, zone: ZoneInfo) -> str:
    """`2026-11-03 14:00:05`, in the zone that the page states."""
    return NONE if at_ns is None else f"{_local(at_ns, zone):%Y-%m-%d %H:%M:%S}"


def clock(at_ns: int | None, zone: ZoneInfo) -> str:
    """`14:00:05`, in the zone that the page states."""
    return NONE if at_ns is None else f"{_local(at_ns, zone):%H:%M:%S}"


def day(at_ns: int | None, zone: ZoneInfo) -> str:
    """`2026-11-03`, in the zone that the page states."""
    return NONE if at_ns is None else f"{_local(at_ns, zone):%Y-%m-%d}"


def machine(at_ns: int) -> str:
    """For the `datetime` of a `time` element: UTC."""
    return f"{datetime.fromtimestamp(at_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _local(at_ns: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at_ns // NS_PER_S, UTC).astimezone(zone)
