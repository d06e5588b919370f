"""Whether models can be served: waited for at the start, and said from then on."""

import asyncio
from typing import Final

from commonpool.control.replicas import StartError
from commonpool.core import views
from commonpool.core.state import State
from commonpool.store.journal import Journal

POLL_S: Final = 0.02


def broken(state: State) -> list[str]:
    """A sentence for each model that cannot be served now."""
    return [f"Model {model.model} cannot be served. {model.error}" for model in views.models(state) if model.broken]


async def first_start(state: State) -> None:
    """Wait until every model that should have a replica has a ready one, finds no place for it or cannot start.

    One that cannot start holds up no other: it is said, and tried again. Raises StartError where none can.
    """
    while True:
        models, cannot = views.models(state), broken(state)
        if cannot and len(cannot) == len(models):
            raise StartError(cannot[0])
        if all(model.ready or model.unplaced or model.broken or not model.wanted for model in models):
            return
        await asyncio.sleep(POLL_S)


def ready(state: State, journal: Journal) -> tuple[bool, str]:
    """Whether every model has a ready replica and work can be metered; if not, what is missing."""
    missing = [model.model for model in views.models(state) if not model.ready and (model.wanted or model.broken)]
    if missing:
        return False, f"no replica is ready of: {', '.join(missing)}"
    if journal.trouble:
        return False, journal.trouble
    if journal.overdue:
        return False, journal.overdue
    return True, "ready"
