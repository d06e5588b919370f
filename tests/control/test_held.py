"""What backends have running, noted once a minute, at full hours and at the end."""

from collections.abc import Sequence

from commonpool.control.held import Held
from commonpool.core.ledger import PLATFORM, Phase, Span
from commonpool.core.metering import NOTE_NS, Note
from commonpool.core.model import NS_PER_HOUR, NS_PER_S

H = NS_PER_HOUR


class Room:
    """What was noted, and a clock to set."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.notes: list[Note] = []
        self.held = Held(self._keep, lambda: self.now, lambda: 0)

    def _keep(self, notes: Sequence[Note]) -> None:
        self.notes += notes

    def noted(self) -> list[tuple[int, int]]:
        notes, self.notes = self.notes, []
        return [(note.start_ns, note.end_ns) for note in notes if isinstance(note, Span)]


def test_what_is_there_is_noted_each_minute_and_at_the_full_hour() -> None:
    room = Room(H - 90 * NS_PER_S)
    began = room.now
    room.held.began("m-0.1", "main", "m", 2000, began)
    room.held.tick()
    assert room.noted() == []
    room.now += NOTE_NS
    room.held.tick()
    room.held.tick()
    assert room.noted() == [(began, began + NOTE_NS)]
    room.now = H + 1
    room.held.tick()
    assert room.noted() == [(began, H), (H, H + 1)]
    room.held.ended("m-0.1", H + 5)
    assert room.notes == [Span("m-0.1", Phase.HELD, "main", "m", PLATFORM, 2000, H, H + 5)]
    room.noted()
    room.held.note_all()
    assert room.noted() == []


def test_a_job_of_an_earlier_run_is_noted_since_it_was_begun_in_every_hour() -> None:
    room = Room(3 * H)
    room.held.began("j1", "main", "", 1000, H - 7)
    room.held.ended("j1", 2 * H + 3)  # while nobody watched
    assert room.noted() == [(H - 7, H), (H, 2 * H), (2 * H, 2 * H + 3)]


def test_the_end_of_what_never_began_is_no_note() -> None:
    room = Room(5)
    room.held.ended("m-0.1", 5)
    assert room.noted() == []
