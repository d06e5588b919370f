"""How often somebody may guess a password: per account and per address, in bounded memory.

A guess takes a token from both before it is checked, so that many at once are counted like one after the other; a right
password gives them back. Where somebody has logged in to an account before, they have tokens of their own there:
whoever guesses at an account from elsewhere does not keep its owner out.
"""

from collections import OrderedDict

import msgspec

from commonpool.access.problems import TooManyGuessesError
from commonpool.core.model import NS_PER_S
from commonpool.core.networks import party

Bucket = tuple[str, ...]

ENTRIES_MAX = 20_000
KNOWN_MAX = 5_000
SWEEP_NS = NS_PER_S

# Guesses at once, and how long until there is one more.
PACES = {
    "account": (5, 60 * NS_PER_S),  # at most 1,445 a day at one account
    "address": (20, 10 * NS_PER_S),  # at most 8,660 a day at all accounts from one address
    "known": (5, 60 * NS_PER_S),
    "others": (20, NS_PER_S),  # all that there is no room to tell apart
}


class Guess(msgspec.Struct, frozen=True):
    """A guess that was taken: at which account, from where, and whose tokens it has."""

    name: str
    where: str
    buckets: tuple[Bucket, ...]


class Guesses:
    """Tokens of accounts and addresses. Times are nanoseconds of one clock."""

    def __init__(self) -> None:
        self._free_at: dict[Bucket, int] = {}  # when all tokens of a bucket are there again
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._swept_ns = 0

    def __len__(self) -> int:
        """How many accounts and addresses there is something to remember of."""
        return len(self._free_at)

    def take(self, name: str, address: str, now: int) -> Guess:
        """Take a guess at an account, at none where `name` is "". Raises TooManyGuessesError; then nothing is taken."""
        where = party(address)
        buckets = self._buckets(name, where, now)
        if wait := max(self._wait(bucket, now) for bucket in buckets):
            wait_s = -(-wait // NS_PER_S)
            raise TooManyGuessesError(f"too many passwords were wrong lately; try again in {wait_s} s", wait)
        for bucket in buckets:
            _, every = PACES[bucket[0]]
            self._free_at[bucket] = max(self._free_at.get(bucket, 0), now) + every
        return Guess(name, where, buckets)

    def right(self, guess: Guess, now: int) -> None:
        """The guess was right: it counts as none."""
        for bucket in guess.buckets:
            _, every = PACES[bucket[0]]
            free_at = self._free_at.get(bucket, 0) - every
            if free_at > now:
                self._free_at[bucket] = free_at
            else:
                self._free_at.pop(bucket, None)
        if guess.name:
            self._known[guess.name, guess.where] = None
            self._known.move_to_end((guess.name, guess.where))
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _buckets(self, name: str, where: str, now: int) -> tuple[Bucket, ...]:
        if (name, where) in self._known:
            return (("known", name, where),)
        wanted: tuple[Bucket, ...] = (("account", name), ("address", where)) if name else (("address", where),)
        new = sum(bucket not in self._free_at for bucket in wanted)
        if len(self._free_at) + new <= ENTRIES_MAX:
            return wanted
        if now - self._swept_ns >= SWEEP_NS:
            self._swept_ns = now
            self._free_at = {bucket: free_at for bucket, free_at in self._free_at.items() if free_at > now}
        full = len(self._free_at) + new > ENTRIES_MAX
        return tuple(("others",) if full and bucket not in self._free_at else bucket for bucket in wanted)

    def _wait(self, bucket: Bucket, now: int) -> int:
        burst, every = PACES[bucket[0]]
        return max(0, self._free_at.get(bucket, 0) - now - (burst - 1) * every)
