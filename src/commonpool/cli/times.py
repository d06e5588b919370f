"""From when until when something is asked for: as people write it, and as the admin API takes it."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config.quantities import QuantityError, parse_duration

Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Until when, excluded. [default: now]", show_default=False),
]


def between(since: str, until: str | None) -> dict[str, str | int | list[str]]:
    """What was written for --since and --until as query parameters. Raises CommandError where one is not a time."""
    now_ns = time.time_ns()
    query: dict[str, str | int | list[str]] = {"since_ns": instant(since, now_ns, "--since")}
    if until is not None:
        query["until_ns"] = instant(until, now_ns, "--until")
    return query


def instant(written: str, now_ns: int, option: str) -> int:
    """Nanoseconds since the epoch of `1h` (ago), `2026-01-31` or `2026-01-31T10:00Z`; UTC where no zone is given."""
    try:
        return max(0, now_ns - parse_duration(written))
    except QuantityError:
        pass
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        message = f"{option} {written!r} is neither a duration like 1h or 30d nor a time like 2026-01-31T10:00Z"
        raise CommandError(message, ExitCode.USAGE) from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 10**9)
