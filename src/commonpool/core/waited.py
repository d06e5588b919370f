"""What something that waits has waited for, lately: a cause, whom it is about, and since when."""

from typing import Final

from commonpool.core.model import Cause, Wait

# The most changes of cause that are remembered: an explanation needs the last few, not a history.
_CAUSES_MAX: Final = 64


class Waited:
    """The causes of one queue's head, in order."""

    __slots__ = ("_about", "_cause", "_causes", "_since")

    def __init__(self) -> None:
        self._since = -1  # since when it waits for what, and what it waited for before, oldest first
        self._cause = Cause.OWN_QUEUE
        self._about = ""
        self._causes: list[tuple[int, Cause, str]] = []

    @property
    def cause(self) -> Cause:
        """What it waits for now."""
        return self._cause

    def note(self, now: int, cause: Cause, name: str) -> None:
        """From now on it waits for this."""
        if cause is self._cause and name == self._about and self._since >= 0:
            return
        causes = self._causes
        if self._since == now:
            if causes and causes[-1][1] is cause and causes[-1][2] == name:
                self._since, self._cause, self._about = causes.pop()
                return
        elif self._since >= 0:
            if len(causes) >= _CAUSES_MAX:
                del causes[: _CAUSES_MAX // 2]
            causes.append((self._since, self._cause, self._about))
        self._since, self._cause, self._about = now, cause, name

    def waits(self, since: int, until: int) -> tuple[Wait, ...]:
        """What it waited for in that time, in order; what is no longer known is left out."""
        if until <= since or self._since < 0:
            return ()
        if self._since <= since:
            return (Wait(self._cause, self._about, until - since),)
        found = [Wait(self._cause, self._about, until - self._since)] if self._since < until else []
        until = min(until, self._since)
        for at, cause, name in reversed(self._causes):
            start = max(at, since)
            if until > start:
                found.append(Wait(cause, name, until - start))
                until = start
            if at <= since:
                break
        found.reverse()
        return tuple(found)
