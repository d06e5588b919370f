"""Loans between two parties: when one begins to borrow of another, when that needs it back, when it has it back."""

from collections.abc import Iterator
from typing import Final

import msgspec

from commonpool.core import views
from commonpool.core.english import english
from commonpool.core.model import NS_PER_S
from commonpool.core.said import Said, Value, say
from commonpool.core.state import State
from commonpool.observe.decisions import Decision

# Requests borrow for a moment, one after another: so long without any, and it is over.
QUIET_NS: Final = 5 * NS_PER_S

Pair = tuple[str, str, str]  # pool, lender, borrower


class _Episode(msgspec.Struct):
    since: int
    last: int  # when it was seen last
    most: int  # milli_gpu
    due: bool = False


class Loans:
    """The pairs that lend and borrow."""

    def __init__(self) -> None:
        self._open: dict[Pair, _Episode] = {}

    def since(self, lender: str, borrower: str) -> int | None:
        """Since when the one has lent to the other without a break of QUIET_NS; None where it was not seen to."""
        found = [each.since for pair, each in self._open.items() if pair[1:] == (lender, borrower)]
        return min(found, default=None)

    def look(self, state: State, now: int) -> Iterator[Decision]:
        """See `Observer.look`."""
        for pool, books in state.loans.items():
            needs: dict[str, bool] = {}
            for (lender, borrower), milli_gpu in books.pairs().items():
                pair = pool, lender, borrower
                episode = self._open.get(pair)
                if episode is None:
                    episode = self._open[pair] = _Episode(now, now, milli_gpu)
                    yield _opened(pair, milli_gpu, now)
                episode.last = now
                episode.most = max(episode.most, milli_gpu)
                if episode.due or not lender:  # it is told once; and nobody misses what is guaranteed to nobody
                    continue
                if lender not in needs:
                    needs[lender] = views.due(state, lender) > 0
                if needs[lender]:
                    episode.due = True
                    yield _due(pair, milli_gpu, now)
        over = [pair for pair, episode in self._open.items() if episode.last + QUIET_NS <= now]
        for pair in over:
            yield _returned(pair, self._open.pop(pair), now)


def _opened(pair: Pair, milli_gpu: int, now: int) -> Decision:
    return _loan(pair, now, _of("loan.of", pair, milli_gpu=milli_gpu), milli_gpu)


def _due(pair: Pair, milli_gpu: int, now: int) -> Decision:
    _, lender, borrower = pair
    return _loan(pair, now, say("loan.due", lender=lender, borrower=borrower), milli_gpu)


def _returned(pair: Pair, episode: _Episode, now: int) -> Decision:
    length_ns = max(NS_PER_S, episode.last - episode.since)
    return _loan(pair, now, _of("loan.back_to", pair, milli_gpu=episode.most, length_ns=length_ns), episode.most)


def _of(name: str, pair: Pair, **values: Value) -> Said:
    """Of a tenant, or of what is guaranteed to nobody."""
    pool, lender, borrower = pair
    if lender:
        return say(f"{name}_tenant", borrower=borrower, lender=lender, **values)
    return say(f"{name}_unowned", borrower=borrower, pool=pool, **values)


def _loan(pair: Pair, now: int, said: Said, milli_gpu: int) -> Decision:
    pool, lender, borrower = pair
    return Decision(
        now, "loan", english(said), (lender, borrower), pool=pool, subject=borrower, milli_gpu=milli_gpu, said=said
    )
