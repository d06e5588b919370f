"""What an earlier run of the product left: attempts that were noted and of which nothing will be heard any more."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from commonpool.core.machine import Machine
from commonpool.core.model import UsageRecord
from commonpool.core.records import voided


class Desk(Protocol):
    """What is needed of the owner of the core."""

    @property
    def machine(self) -> Machine:
        """What it asks to decide."""

    def settle(self, record: UsageRecord) -> None:
        """Keep the record of an attempt that the machine does not know."""


async def settle_lost(
    desk: Desk,
    running: Callable[[], tuple[UsageRecord, ...]],
    stored: Callable[[], Awaitable[None]],
    known_until: Callable[[str], Awaitable[int]],
) -> None:
    """Give each of them its record: it is not charged, and ran until its pool was known to be kept for the last time.

    Call it when the core has been told all that still runs. `running` are the attempts that run by what is stored;
    `stored` returns when all that was written by now is. `known_until` says when a pool was noted last by an earlier
    run.
    """

    def expected(note: UsageRecord) -> bool:
        return desk.machine.expects(note.request_id, note.attempt)

    await stored()
    lost = [note for note in running() if not expected(note)]
    await stored()  # the record of one that has ended meanwhile
    still = {(note.request_id, note.attempt) for note in running()}
    for note in lost:
        if (note.request_id, note.attempt) in still:
            until = await known_until(note.pool)
            if not expected(note):  # it may have been heard of after all
                desk.settle(voided(note, until))
