"""The last decisions of the product, with their reasons: a ring in memory, which nobody can fill alone."""

from collections import deque
from collections.abc import Sequence
from heapq import merge
from typing import Literal, get_args

import msgspec

from commonpool.core.said import Said

Kind = Literal["scaling", "loan", "placement", "routing", "quota"]
KINDS: tuple[str, ...] = get_args(Kind)
KEPT_MAX = 1000  # a busy day's; some hundred bytes each


class Decision(msgspec.Struct, frozen=True):
    """Something that the product decided, and why.

    `tenants` are those that it is about: lender and borrower of a loan, the tenant of a quota or a job. Where there are
    none it is about all who use `model`, or, without a model, the platform's own. `subject` is a replica, a job, a
    model or a tenant. `explanation` is one sentence, which names no node: `node` does, "" where it is about none.
    `said` is the same by its name. `number` is given when it is kept.
    """

    at_ns: int
    kind: Kind
    explanation: str
    tenants: tuple[str, ...] = ()
    model: str = ""
    pool: str = ""
    subject: str = ""
    milli_gpu: int = 0
    node: str = ""
    number: int = 0
    said: Said | None = None

    @property
    def owner(self) -> str:
        """At whose expense it is kept: of a loan the borrower's, who asked for it."""
        return self.tenants[-1] if self.tenants else ""


class Decisions:
    """The last `kept_max` decisions. Where there are more, whoever has most of them loses its oldest one."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._by_owner: dict[str, deque[Decision]] = {}
        self._count = 0
        self.made: dict[str, int] = dict.fromkeys(KINDS, 0)
        """How many were made of each kind."""
        self.last = 0
        """The number of the newest."""

    @property
    def lost(self) -> int:
        """How many are not kept any more."""
        return self.last - self._count

    def add(self, decision: Decision) -> Decision:
        """Keep it, and return it with its number."""
        self.last += 1
        self.made[decision.kind] += 1
        kept = msgspec.structs.replace(decision, number=self.last)
        self._by_owner.setdefault(kept.owner, deque()).append(kept)
        self._count += 1
        if self._count > self._kept_max:
            most = max(self._by_owner, key=lambda owner: (len(self._by_owner[owner]), -self._by_owner[owner][0].number))
            self._by_owner[most].popleft()
            self._count -= 1
            if not self._by_owner[most]:
                del self._by_owner[most]
        return kept

    def after(self, number: int) -> Sequence[Decision]:
        """Those behind a number, in order; 0 for all."""
        if number >= self.last:
            return ()
        newer = (
            [each for each in kept if each.number > number]
            for kept in self._by_owner.values()
            if kept[-1].number > number
        )
        return tuple(merge(*newer, key=lambda decision: decision.number))
