"""Asking jobs that can save their state to give back what a lender needs; nothing is ever taken from them."""

from typing import Final

from commonpool.core import views
from commonpool.core.devices import Devices
from commonpool.core.effects import Checkpoint, Effect
from commonpool.core.entries import Entry
from commonpool.core.model import NS_PER_S
from commonpool.core.state import State

# How long a job may take to save its state when a lender needs back what it borrows.
CHECKPOINT_NS: Final = 3 * NS_PER_S


def call_in(state: State, devices: Devices, now: int, effects: list[Effect]) -> None:
    """Ask jobs that can save their state to end, where a lender needs back what they borrow; the newest first.

    What was asked for a moment ago is on its way. A job that goes on all the same is not asked again.
    """
    needed: dict[str, int] = {}
    for entry in devices.savers.values():
        if now < devices.saving.get(entry.id, now):
            _returns(state, entry, needed)
    for entry in reversed(devices.savers.values()):
        if entry.id not in devices.saving and _returns(state, entry, needed):
            devices.saving[entry.id] = now + CHECKPOINT_NS
            effects.append(Checkpoint(entry.id, entry.attempt, CHECKPOINT_NS))


def _returns(state: State, entry: Entry, needed: dict[str, int]) -> bool:
    """Count what a job borrows as returned to those who need it; whether any of them does."""
    wanted = False
    loan = entry.running
    while loan is not None:
        lender = loan.lender
        if lender not in needed:
            asked = state.accounts[lender].asked if lender in state.accounts else 0
            needed[lender] = min(views.due(state, lender), asked)
        wanted = wanted or needed[lender] > 0
        loan = loan.following
    loan = entry.running if wanted else None
    while loan is not None:
        needed[loan.lender] -= loan.milli_gpu
        loan = loan.following
    return wanted
