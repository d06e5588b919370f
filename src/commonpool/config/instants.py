"""Points in time as people write them, RFC 3339 in UTC, as nanoseconds since the epoch."""

import re
from datetime import UTC, datetime, timedelta

from commonpool.config.problems import quote

PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
EXAMPLE = "2027-03-01T22:00:00Z"

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000


def parse_instant(text: str) -> int:
    """Nanoseconds since the epoch: `2027-03-01T22:00:00Z`. Raises ValueError with a whole sentence."""
    if re.match(PATTERN, text) and "\n" not in text:
        try:
            exact = datetime.strptime(text, _FORM).replace(tzinfo=UTC)
        except ValueError:
            raise ValueError(f"{quote(text)} is not in the calendar; write a time like {EXAMPLE}") from None
        if exact >= _EPOCH:
            return (exact - _EPOCH) // timedelta(seconds=1) * _SECOND
    raise ValueError(f"{quote(text)} is not a time in UTC; write it like {EXAMPLE}")


def format_instant(at_ns: int) -> str:
    """`2027-03-01T22:00:00Z`."""
    return (_EPOCH + timedelta(seconds=at_ns // _SECOND)).strftime(_FORM)
