"""Clients that ask the same again at once: the errors that they get are held back, each time for longer.

A request that is refused costs little, and a client that sends it again as fast as it is refused still takes the
gateway's time from everybody. So errors are counted by key and request: each counts but for the second and third try of
one that came in time, and one that was counted is forgotten each second. In time is a try when the answer's
`retry-after` is over, or, where it has none, after `PAUSE_NS`, which is less than the shortest back-off of OpenAI's
clients. Those are never slowed: they try three times, and as many of them as `TOLERATED` may do so at once.

Nothing but an error is ever held back, for `HELD_NS_MAX` at most, by a timer and not by a worker.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

NS_PER_S: Final = 1_000_000_000
PAUSE_NS: Final = 300_000_000  # OpenAI's clients wait 375 ms at least
PATIENCE_NS_MAX: Final = 60 * NS_PER_S  # of a longer retry-after OpenAI's clients think nothing
LATE_NS: Final = 2 * NS_PER_S  # so much later than it might, a try may come: their back-off is longer than the pause
TRIES: Final = 3
TOLERATED: Final = 64
STEP_NS: Final = 50_000_000  # so much longer for each one more
HELD_NS_MAX: Final = 5 * NS_PER_S
HELD_MAX: Final = 4096  # errors held back at once; more are answered at once
ASKED_MAX: Final = 2048  # requests that are remembered
DUE_MAX: Final = 128  # tries in time that are remembered of each
PART_BYTES: Final = 4096


class Hurry(enum.StrEnum):
    """Why an error is held back."""

    BEFORE_RETRY_AFTER = "before_retry_after"
    AT_ONCE = "at_once"


class Slowed(msgspec.Struct, frozen=True):
    """An error is held back for so long, and why."""

    ns: int
    why: Hurry

    def header(self) -> bytes:
        """The header line that says so."""
        said = self.why.value.replace("_", " ")
        return b"x-commonpool-slowed: %.3fs; the same was asked again %b\r\n" % (self.ns / NS_PER_S, said.encode())


class _Asked:
    """What is remembered of one request of one key. `due` are the times from which another try of it is in time, each
    with how many tries there were.
    """

    __slots__ = ("due", "full_at", "told")

    def __init__(self) -> None:
        self.due: deque[tuple[int, int]] = deque(maxlen=DUE_MAX)
        self.full_at = 0  # when all that was counted is forgotten
        self.told = False  # whether the last answer said when to try again


class Repeats:
    """The requests that were answered with an error lately. Each that counts too many is held back `step_ns` longer."""

    def __init__(self, step_ns: int = STEP_NS) -> None:
        self._step_ns = step_ns
        self._asked: dict[tuple[str, int], _Asked] = {}
        self.held = 0  # errors that are held back now

    def __len__(self) -> int:
        return len(self._asked)

    def slowed(self, key: str, likeness: int, retry_after_ns: int | None, now: int) -> Slowed | None:
        """A key's request is answered with an error; whether that is held back. `now` is monotonic nanoseconds."""
        name = key, likeness
        asked = self._asked.pop(name, None)
        found: Slowed | None = None
        tries = 0
        if asked is None:
            asked = _Asked()
        else:
            tries = _tries(asked.due, now)
        if not tries:
            asked.full_at = max(asked.full_at, now) + NS_PER_S
            beyond = asked.full_at - now - TOLERATED * NS_PER_S
            if beyond > 0 and self.held < HELD_MAX:
                ns = min(self._step_ns * -(-beyond // NS_PER_S), HELD_NS_MAX)
                found = Slowed(ns, Hurry.BEFORE_RETRY_AFTER if asked.told else Hurry.AT_ONCE)
        if tries + 1 < TRIES:
            wait_ns = PAUSE_NS if retry_after_ns is None else min(max(retry_after_ns, PAUSE_NS), PATIENCE_NS_MAX)
            asked.due.append((now + wait_ns + (0 if found is None else found.ns), tries + 1))
        asked.told = retry_after_ns is not None
        self._asked[name] = asked  # at the end: what was asked longest ago is forgotten first
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        return found


class HeldBack:
    """An error that its client gets in a while; `answer` gives it. In the place of an exchange until then."""

    __slots__ = ("_answer", "_repeats", "_timer")

    def __init__(self, repeats: Repeats, slowed: Slowed, answer: Callable[[], None]) -> None:
        self._repeats = repeats
        self._answer = answer
        self._timer = asyncio.get_running_loop().call_later(slowed.ns / NS_PER_S, self.tell)
        repeats.held += 1

    def tell(self) -> None:
        """The client gets it now."""
        self.gone()
        self._answer()

    def gone(self) -> None:
        self._timer.cancel()
        self._repeats.held -= 1

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def overdue(self, now_ns: int) -> None:
        pass


def likeness(parts: Iterable[bytes]) -> int:
    """A number that equal requests share: by the length of each part, and the bytes at its beginning and its end."""
    return hash(tuple((len(part), part[:PART_BYTES], part[-PART_BYTES:]) for part in parts))


def _tries(due: deque[tuple[int, int]], now: int) -> int:
    """How many tries there were before this one, if it is in time; else 0."""
    for each in due:
        if each[0] <= now <= each[0] + LATE_NS:
            due.remove(each)
            return each[1]
    return 0
