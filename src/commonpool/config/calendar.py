"""The billing time zone's calendar: when its hours, days and months begin, in nanoseconds since the epoch (UTC).

A day runs from local midnight to the next, so it has 24 hours, or some more or less where clocks are changed; where
they are put forward at midnight it begins then. Every hour of the grid lies in one day and every day in one month, so
sums of days are those of months.
"""

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from commonpool.config.problems import nearest, quote
from commonpool.core.ledger import hour_of
from commonpool.core.model import NS_PER_HOUR, NS_PER_S

DATE_FIRST = date(2020, 1, 1)  # before that, zones have changed by parts of an hour that would have to be left out
DATE_LAST = date(2099, 12, 31)
DATE_PATTERN = r"^20[2-9][0-9]-[0-9]{2}-[0-9]{2}$"
MONTH_PATTERN = r"^20[2-9][0-9]-[0-9]{2}$"
ZONE_PATTERN = r"^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_HOUR = timedelta(hours=1)


class Calendar(msgspec.Struct, frozen=True):
    """Hours, days (`2026-11-03`) and months (`2026-11`) of a time zone that `parse_zone` took.

    A period excludes its end. Raises ValueError with a whole sentence for the name of a day or month that there is not.
    """

    time_zone: str = "UTC"

    @property
    def hour_offset_ns(self) -> int:
        """Hours begin at k × 3600 s plus this; the same all year, since clocks are put forward by whole hours."""
        offset = datetime.combine(DATE_FIRST, datetime.min.time(), self._zone).utcoffset() or timedelta(0)
        return -(offset // timedelta(seconds=1)) * NS_PER_S % NS_PER_HOUR

    def day(self, name: str) -> tuple[int, int]:
        """When the day begins and ends: `2026-11-03`."""
        at = parse_date(name)
        return self.begins(at), self.begins(at + _DAY)

    def month(self, name: str) -> tuple[int, int]:
        """When the month begins and ends: `2026-11`."""
        if not re.match(MONTH_PATTERN, name) or "\n" in name:
            raise ValueError(f"{quote(name)} is not a month from 2020 to 2099; write it like 2026-11")
        try:
            first = date.fromisoformat(f"{name}-01")
        except ValueError:
            raise ValueError(f"{quote(name)} is not in the calendar; write a month like 2026-11") from None
        return self.begins(first), self.begins((first + 31 * _DAY).replace(day=1))

    def begins(self, at: date) -> int:
        """When a day begins: its first instant, ns."""
        # Where midnight is left out, the offset before it gives the instant of the change; of two midnights, the first.
        midnight = datetime(at.year, at.month, at.day, tzinfo=self._zone, fold=0)
        return (midnight - _EPOCH) // timedelta(seconds=1) * NS_PER_S

    def day_of(self, at_ns: int) -> str:
        """The day of an instant: `2026-11-03`."""
        return self._local(at_ns).date().isoformat()

    def month_of(self, at_ns: int) -> str:
        """The month of an instant: `2026-11`."""
        return self.day_of(at_ns)[:7]

    def local_hour(self, at_ns: int) -> int:
        """What the clock's hour shows, 0 to 23."""
        return self._local(at_ns).hour

    def hour_of(self, at_ns: int) -> int:
        """When the hour of an instant begins."""
        return hour_of(at_ns, self.hour_offset_ns)

    def days(self, start_ns: int, end_ns: int) -> list[str]:
        """The days of an interval, in order, those included that are only partly in it."""
        if end_ns <= start_ns:
            return []
        first, last = (self._local(at).date() for at in (start_ns, end_ns - 1))
        return [(first + number * _DAY).isoformat() for number in range((last - first).days + 1)]

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    def _local(self, at_ns: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at_ns // NS_PER_S)).astimezone(self._zone)


def parse_date(text: str) -> date:
    """A local date: `2026-11-03`. Raises ValueError with a whole sentence."""
    if not re.match(DATE_PATTERN, text) or "\n" in text:
        raise ValueError(f"{quote(text)} is not a date from {DATE_FIRST} to {DATE_LAST}; write it like 2026-11-03")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{quote(text)} is not in the calendar; write a date like 2026-11-03") from None


def parse_zone(text: str) -> str:
    """The name of a time zone whose hours are whole: `Europe/Berlin`. Raises ValueError with a whole sentence."""
    try:
        zone = ZoneInfo(text) if re.match(ZONE_PATTERN, text) and "\n" not in text else None
    except (KeyError, ValueError, OSError):  # unknown, not a name, or a folder
        zone = None
    if zone is None:
        near = nearest(text, sorted(filter(re.compile(ZONE_PATTERN).match, available_timezones())))
        end = f"did you mean {near}?" if near else "write its name in the IANA database, like Europe/Berlin or UTC"
        raise ValueError(f"{quote(text)} is not a time zone; {end}")
    at, last = (datetime.combine(day, datetime.min.time(), UTC) for day in (DATE_FIRST, DATE_LAST))
    offset = zone.utcoffset(at.astimezone(zone))
    while (at := at + _WEEK) < last:
        now = zone.utcoffset(at.astimezone(zone))
        if offset is not None and now is not None and (now - offset) % _HOUR:
            raise ValueError(
                f"{quote(text)} puts its clocks forward by a part of an hour, which the hours of a bill cannot follow; "
                "choose a zone that does so by whole hours, or UTC"
            )
    return text
