"""A message as people read it: a title and lines, plain text, as long as its receiver takes them."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from commonpool.core.alerts import Severity
from commonpool.core.telling import Item, Message

PRODUCT: Final = "commonpool"


class Letter(msgspec.Struct, frozen=True):
    """What is sent through a channel at once. One without items is a test of the channel."""

    channel: str
    tenant: str
    pool: str
    items: tuple[Item, ...]
    sent_ns: int

    @property
    def firing(self) -> int:
        return sum(not item.resolved for item in self.items)

    @property
    def worst(self) -> Severity | None:
        """Of what fires; None where nothing does."""
        found = [item.episode.trouble.condition.severity for item in self.items if not item.resolved]
        return max(found, key=lambda severity: severity.rank, default=None)


def letter_of(message: Message, now_ns: int) -> Letter:
    return Letter(message.channel, message.tenant, message.pool, message.items, now_ns)


def trial_letter(channel: str, tenant: str, now_ns: int) -> Letter:
    """What shows that a channel works."""
    return Letter(channel, tenant, "", (), now_ns)


def title(letter: Letter) -> str:
    """One line: how many alerts fire and how many are over, and of which pool."""
    if not letter.items:
        return f"[{PRODUCT}] test of channel {letter.channel}"
    counts = []
    if letter.worst is not None:
        counts.append(f"{letter.worst.value}: {letter.firing} firing")
    if over := len(letter.items) - letter.firing:
        counts.append(f"{over} resolved")
    where = f" in pool {letter.pool}" if letter.pool else ""
    return f"[{PRODUCT}] {', '.join(counts)}{where}"


def lines(letter: Letter, moment: Callable[[int], str]) -> list[str]:
    """One line for each alert; `moment` writes a time."""
    if not letter.items:
        return ["This is a test. Alerts of this channel arrive here."]
    return [_line(item, moment) for item in letter.items]


def _line(item: Item, moment: Callable[[int], str]) -> str:
    episode = item.episode
    trouble = episode.trouble
    if episode.ended_ns is not None:
        span = f"{moment(episode.since_ns)} to {moment(episode.ended_ns)}"
        return f"RESOLVED {trouble.name} ({span}): {trouble.sentence}"
    still = "still, " if item.again else ""
    said = f"{trouble.condition.severity.value.upper()} {trouble.name} ({still}since {moment(episode.since_ns)})"
    return f"{said}: {trouble.sentence} What to do: {trouble.condition.advice}"


def within(head: str, body: Sequence[str], most_bytes: int) -> list[str]:
    """As many of the lines as fit, each whole; what is left out is counted in the last one."""
    left = most_bytes - len(head.encode())
    kept: list[str] = []
    for at, line in enumerate(body):
        rest = len(body) - at
        more = f"and {rest} more: `commonpool alerts list` shows them"
        room = left - (len(more.encode()) + 8 if rest > 1 else 0)
        if len(line.encode()) + 8 > room:
            if not kept:
                kept.append(line.encode()[: max(0, room - 8)].decode(errors="ignore"))
                more = f"and {rest - 1} more: `commonpool alerts list` shows them"
                return [*kept, more] if rest > 1 else kept
            return [*kept, more]
        kept.append(line)
        left -= len(line.encode()) + 8
    return kept
