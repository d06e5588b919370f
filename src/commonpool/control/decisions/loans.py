"""Loans between two parties: when one begins to borrow of another, when that needs it back, when it has it back."""

from collections.abc import Iterator
from typing import Final

import msgspec

from commonpool.config.quantities import format_gpu
from commonpool.core import views
from commonpool.core.explain import duration
from commonpool.core.model import NS_PER_S
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
    pool, lender, borrower = pair
    why = "which lies idle" if lender else "which is guaranteed to nobody"
    return _loan(pair, now, f"{borrower} borrows {format_gpu(milli_gpu)} of {_whose(lender, pool)}, {why}", milli_gpu)


def _due(pair: Pair, milli_gpu: int, now: int) -> Decision:
    _, lender, borrower = pair
    said = f"{lender} has work waiting and needs back what {borrower} borrows: what frees next goes to {lender}"
    return _loan(pair, now, said, milli_gpu)


def _returned(pair: Pair, episode: _Episode, now: int) -> Decision:
    pool, lender, borrower = pair
    length = duration(max(NS_PER_S, episode.last - episode.since))
    said = f"{borrower} has given back what it borrowed of {_whose(lender, pool)}"
    return _loan(pair, now, f"{said}: {format_gpu(episode.most)} at most, for {length}", episode.most)


def _loan(pair: Pair, now: int, said: str, milli_gpu: int) -> Decision:
    pool, lender, borrower = pair
    return Decision(now, "loan", said, (lender, borrower), pool=pool, subject=borrower, milli_gpu=milli_gpu)


def _whose(lender: str, pool: str) -> str:
    return f"{lender}'s guarantee" if lender else f"the unowned part of {pool}"
