"""Closing an hour of a pool: everything that its devices could do in it becomes postings (`ledger` says which).

Sums are as good as instants here, since all of it is linear: what an owner kept idle is what it was guaranteed × time,
less what it used within that and what it lent. Three things can take more than their owner has: work that runs on after
its guarantee was cut, replicas that load or drain, and work that went on while nobody kept the books. What they take
beyond their owner's own is the platform's first, `down` before idle, then the other owners' idle in proportion, by
largest remainder.

What was used is posted as used, also where it is more than there was, as when devices are lost under what runs. The
pool is then credited with more than capacity × time, and the reconciliation of the hour shows by how much.

An hour that is closed stays so. Use of it that is heard of later is posted in the hour that is open, about then, at the
prices of then, and what was posted as idle is given back: the tenant's, or the lender's where it was borrowed. What was
posted and was not so is taken back the same way.
"""

from typing import Final

from commonpool.core.ledger import (
    PLATFORM,
    SUPPLIED,
    Hour,
    Kind,
    Late,
    LedgerError,
    Phase,
    Posting,
    Span,
    Standing,
)
from commonpool.core.pricing import round_lines
from commonpool.core.settling import Entries

_KINDS: Final = {Phase.LOADING: Kind.LOADING, Phase.DRAINING: Kind.DRAINING}
_GROUP: Final = "group:"


def close(hour: Hour) -> tuple[Posting, ...]:
    """The postings of an hour, sorted. What is supplied is capacity × time, unless more was used than there was.

    Raises UnknownPriceError where something is to be charged that has no price in force, LedgerError where what is
    known of the hour cannot be.
    """
    start, rates = hour.start_ns, hour.rates
    _check_times(hour)
    entries = Entries(hour.pool, _groups(hour))

    # 1. Whose the time was, and what of it was used, by whom.
    left = _owned(hour)
    for use in hour.uses:
        entries.work(use, start, rates)
        for owner, quantity in entries.taken(use).items():
            left[owner] = left.get(owner, 0) - quantity
    for span in hour.spans:
        if span.phase in _KINDS:
            quantity = span.milli_gpu * (span.end_ns - span.start_ns)
            entries.supplied(start, _KINDS[span.phase], span.account, quantity, rates)
            left[span.account] = left.get(span.account, 0) - quantity

    # 2. The rest of it was idle.
    down, idle = _rest(left, _gaps(hour))
    entries.supplied(start, Kind.DOWN, PLATFORM, down, rates)
    for owner, quantity in idle.items():
        entries.supplied(start, Kind.IDLE, owner, quantity, rates)

    # 3. What is metered beside GPU time, and what is to be put right in hours that are closed.
    for counted in hour.counted:
        entries.fees(counted, start, rates)
    for late in hour.late:
        _put_right(entries, late)
    return entries.postings(start)


def devices(hour: Hour) -> int:
    """Capacity × time of an hour, gaps at what there was before them; milli_gpu_ns."""
    return sum(each.milli_gpu * (each.end_ns - each.start_ns) for each in hour.standings) + _gaps(hour)


def charged(postings: tuple[Posting, ...]) -> int:
    """What postings say that a pool supplied, milli_gpu_ns."""
    return sum(posting.quantity for posting in postings if posting.kind in SUPPLIED)


# -- what there was ----------------------------------------------------------------------------------------------------


def _groups(hour: Hour) -> frozenset[str]:
    """The names of the groups that are guaranteed something."""
    standings = hour.standings if hour.before is None else (hour.before, *hour.standings)
    owners = (owner for each in standings for owner in each.guaranteed)
    return frozenset(owner.removeprefix(_GROUP) for owner in owners if owner.startswith(_GROUP))


def _check_times(hour: Hour) -> None:
    """What was noted lies within the hour, in order."""
    notes: list[Standing | Span] = [*hour.standings, *hour.spans]
    for note in notes:
        what = "standing" if isinstance(note, Standing) else f"span of {note.id}"
        if note.end_ns < note.start_ns:
            raise LedgerError(
                f"A {what} in pool {note.pool} ends at {note.end_ns} ns, before its start at {note.start_ns} ns: the"
                " clock went backwards. Correct it in the store; the hour is closed then."
            )
        if note.start_ns < hour.start_ns or note.end_ns > hour.end_ns or note.pool != hour.pool:
            raise LedgerError(
                f"A {what} in pool {note.pool} from {note.start_ns} to {note.end_ns} ns is not within the hour of pool"
                f" {hour.pool} from {hour.start_ns} to {hour.end_ns} ns."
            )
        if note.milli_gpu < 0:
            raise LedgerError(f"A {what} in pool {note.pool} has {note.milli_gpu} milli_gpu; it cannot be below zero.")


def _gaps(hour: Hour) -> int:
    """What there was while nobody kept the books: between standings as before the gap, milli_gpu_ns."""
    gaps = 0
    until, milli_gpu = hour.start_ns, 0 if hour.before is None else hour.before.milli_gpu
    for each in sorted(hour.standings, key=lambda each: (each.start_ns, each.end_ns)):
        if each.start_ns < until:
            raise LedgerError(
                f"Two standings of pool {hour.pool} overlap: one goes on until {until} ns, the next begins at"
                f" {each.start_ns} ns. Correct them in the store; the hour is closed then."
            )
        gaps += milli_gpu * (each.start_ns - until)
        until, milli_gpu = each.end_ns, each.milli_gpu
    return gaps + milli_gpu * (hour.end_ns - until)


def _owned(hour: Hour) -> dict[str, int]:
    """What each account was guaranteed, milli_gpu_ns; what nobody was is the platform's."""
    owned = {PLATFORM: 0}
    for each in hour.standings:
        length = each.end_ns - each.start_ns
        guaranteed = sum(each.guaranteed.values())
        if guaranteed > each.milli_gpu or min(each.guaranteed.values(), default=0) < 0:
            raise LedgerError(
                f"Of pool {each.pool} with {each.milli_gpu} milli_gpu {each.guaranteed} are guaranteed from"
                f" {each.start_ns} ns on; guarantees cannot be below zero or more than there is."
            )
        owned[PLATFORM] += (each.milli_gpu - guaranteed) * length
        for owner, milli_gpu in each.guaranteed.items():
            owned[owner] = owned.get(owner, 0) + milli_gpu * length
    return owned


def _rest(left: dict[str, int], down: int) -> tuple[int, dict[str, int]]:
    """What was idle while nobody kept the books, and otherwise, by owner.

    Where `left` is below zero somebody took more than was its own: that comes off the others.
    """
    idle = {owner: quantity for owner, quantity in left.items() if quantity > 0}
    taken = sum(idle.values()) - sum(left.values())
    from_down = min(down, taken)
    taken -= from_down
    unowned = idle.pop(PLATFORM, 0)
    from_unowned = min(unowned, taken)
    taken -= from_unowned
    owned = sum(idle.values())
    if taken:
        rest = max(0, owned - taken)
        idle = round_lines({owner: quantity * rest for owner, quantity in idle.items()}, owned) if rest else {}
    idle[PLATFORM] = unowned - from_unowned
    return down - from_down, idle


# -- what is put right -------------------------------------------------------------------------------------------------


def _put_right(entries: Entries, late: Late) -> None:
    """What was idle then and was not, or what was not idle and was."""
    for sign, uses in ((1, late.uses), (-1, late.returned)):
        for use in uses:
            entries.work(use, late.about_ns, late.rates, sign)
            for owner, quantity in entries.taken(use).items():
                entries.supplied(late.about_ns, Kind.IDLE, owner, -sign * quantity, late.rates)
    for counted in late.counted:
        entries.fees(counted, late.about_ns, late.rates)
