"""Numbers as people read them: GPUs, waits, GPU time, money, moments. Pure, the same in every table."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from commonpool.core.model import NS_PER_S
from commonpool.core.pricing import COST_UNIT, round_lines

NONE = "–"
PS_PER_MS = 10**9  # GPU seconds come as exact decimals of twelve places


def gpus(milli_gpu: int) -> str:
    """`2`, `0.125`: three decimals at most."""
    whole, rest = divmod(milli_gpu, 1000)
    return f"{whole:,}.{rest:03d}".rstrip("0").rstrip(".")


def wait(wait_ns: int | None) -> str:
    """`0.42 s`; what is not zero is never shown as zero."""
    if wait_ns is None:
        return NONE
    hundredths = (wait_ns + NS_PER_S // 200) // (NS_PER_S // 100)
    return "<0.01 s" if wait_ns and not hundredths else f"{hundredths // 100:,}.{hundredths % 100:02d} s"


def rounded_milliseconds(column: Sequence[Decimal]) -> list[int]:
    """GPU seconds as whole thousandths whose sum is the rounded sum, so that the column adds up as shown."""
    exact = {f"{at:09d}": int(value.scaleb(12)) for at, value in enumerate(column)}
    return [value for _, value in sorted(round_lines(exact, PS_PER_MS).items())]


def gpu_seconds(column: Sequence[Decimal]) -> list[str]:
    """A column of GPU seconds that adds up as shown: `1,234.500`."""
    return [thousandths(value) for value in rounded_milliseconds(column)]


def rounded_milli_hours(column: Sequence[Decimal]) -> list[int]:
    """GPU seconds as whole thousandths of GPU hours whose sum is the rounded sum."""
    exact = {f"{at:09d}": int(value.scaleb(12)) for at, value in enumerate(column)}
    return [value for _, value in sorted(round_lines(exact, COST_UNIT // 1000).items())]


def gpu_hours(column: Sequence[Decimal]) -> list[str]:
    """A column of GPU seconds as GPU hours that adds up as shown: `1,234.500`."""
    return [thousandths(value) for value in rounded_milli_hours(column)]


def thousandths(value: int) -> str:
    """`1,234.500`."""
    return f"{'-' if value < 0 else ''}{abs(value) // 1000:,}.{abs(value) % 1000:03d}"


def money(micro: int) -> str:
    """`12.500000`: all six decimals, so that a column adds up as shown."""
    return f"{'-' if micro < 0 else ''}{abs(micro) // 10**6:,}.{abs(micro) % 10**6:06d}"


def work(requests: int, jobs: int) -> str:
    """`6 requests`, `1 request and 2 jobs`."""
    counted = [(count, name) for count, name in ((requests, "request"), (jobs, "job")) if count]
    return " and ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in counted)


def moment(at_ns: int | None) -> str:
    """`2026-01-31 10:00:00Z`."""
    return NONE if at_ns is None else f"{datetime.fromtimestamp(at_ns // NS_PER_S, UTC):%Y-%m-%d %H:%M:%S}Z"


def local(at_ns: int, time_zone: str) -> str:
    """`2026-11-03 14:00 Europe/Berlin`."""
    at = datetime.fromtimestamp(at_ns // NS_PER_S, UTC).astimezone(ZoneInfo(time_zone))
    return f"{at:%Y-%m-%d %H:%M} {time_zone}"


def age(since_ns: int, now_ns: int) -> str:
    """`12 s`, `3 m`, `5 h`, `2 d`: how long ago, whole units."""
    seconds = max(0, now_ns - since_ns) // NS_PER_S
    for unit, length, enough in (("d", 86400, 172800), ("h", 3600, 7200), ("m", 60, 120)):
        if seconds >= enough:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
