"""What the backends have running, by their own account: whose process or engine is there, from when until when.

It is noted beside what the core gives out (`core.metering`) and never asked of it, so that the two can be compared.
"""

from collections.abc import Callable, Sequence

from commonpool.core.ledger import PLATFORM, Phase, Span, hour_of
from commonpool.core.metering import NOTE_NS, Note, noted


class Held:
    """Spans of what is there. `note` keeps them; `offset` says where the hours of the books begin."""

    def __init__(
        self, note: Callable[[Sequence[Note]], None], clock: Callable[[], int], offset: Callable[[], int]
    ) -> None:
        self._note = note
        self._clock = clock
        self._offset = offset
        self._there: dict[str, Span] = {}
        self._noted = 0

    def began(self, name: str, pool: str, model: str, milli_gpu: int, at: int) -> None:
        """A replica or job is there, since then."""
        self._there[name] = Span(name, Phase.HELD, pool, model, PLATFORM, milli_gpu, at, at)

    def ended(self, name: str, at: int) -> None:
        """Nothing is left of it, since then. One that never began is no error."""
        span = self._there.pop(name, None)
        if span is not None:
            self._keep([span], at)

    def tick(self) -> None:
        """About once a second: what lasts is noted once a minute and at each full hour."""
        now, offset = self._clock(), self._offset()
        if now - self._noted >= NOTE_NS or hour_of(now, offset) > hour_of(self._noted, offset):
            self.note_all()

    def note_all(self) -> None:
        """Note all that is there until now."""
        self._noted = self._clock()
        for span in self._keep(list(self._there.values()), self._noted):
            self._there[span.id] = span

    def _keep(self, spans: list[Span], until: int) -> list[Span]:
        notes: list[Note] = []
        lasting = [noted(span, until, self._offset(), notes) for span in spans]
        self._note(notes)
        return lasting
