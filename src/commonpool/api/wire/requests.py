"""One request or job: what it does now, its attempts, and its life step by step."""

from typing import Literal

import msgspec

from commonpool.core.explain import WaitPart
from commonpool.core.model import Loan, UsageRecord
from commonpool.core.said import Said
from commonpool.core.standing import Standing


class Attempt(UsageRecord, frozen=True, array_like=False, kw_only=True):
    """One attempt at a request or job: the durable record that bills are made of, with its wait in words.

    `waits` are by cause and name, the longest first. `explanation` says in one line what became of it and why it
    waited, `advice` what to do about a refusal ("" where it was not refused).
    """

    waits: tuple[WaitPart, ...] = ()
    explanation: str
    advice: str


class LiveRequest(msgspec.Struct, frozen=True):
    """A request that waits or runs now. `wait_ns` and `waits` are so far, of this attempt, and empty while it runs."""

    tenant: str
    app: str
    model: str
    tier: str
    state: Literal["waiting", "running"]
    wait_ns: int
    waits: tuple[WaitPart, ...]
    explanation: str


class RequestStory(msgspec.Struct, frozen=True):
    """What is known of a request: what it does now (None once it has ended), and its attempts that have ended."""

    id: str
    live: LiveRequest | None
    attempts: tuple[Attempt, ...]


class Before(msgspec.Struct, frozen=True):
    """Requests of a tenant ("": of all others) beside one that waited for the same model: how many `waiting` were there
    when it came, and how many were `served` of all, later ones too, while it waited.
    """

    tenant: str
    waiting: int
    served: int


class Step(msgspec.Struct, frozen=True):
    """A moment in the life of a request or job; `explanation` says it in a sentence, `said` by its name.

    `ns` is the length of the wait that begins (`queued`), else how long after the arrival it is. `waits` and `before`
    are those of a wait, and the longest and most come first. `replica`, `milli_gpu` and `loans` are of an attempt that
    is `dispatched`, `node` for those who see the whole platform. `outcome`, `status`, tokens and `cost_micro` are of
    what has `ended`; the cost is None where that is not known.
    """

    at_ns: int
    what: Literal["arrived", "queued", "dispatched", "first_token", "ended"]
    attempt: int
    explanation: str
    ns: int
    waits: tuple[WaitPart, ...] = ()
    before: tuple[Before, ...] = ()
    replica: str = ""
    node: str = ""
    milli_gpu: int = 0
    loans: tuple[Loan, ...] = ()
    outcome: str = ""
    status: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int | None = None
    said: Said | None = None


class RequestTimeline(msgspec.Struct, frozen=True):
    """A request or job from its arrival to now or its end, `steps` in order of time.

    `state` is waiting, running, completed, cancelled, failed or refused. `standing` is its place while it waits.
    `cost_micro` is what its tenant is charged for the attempts that have ended.
    """

    id: str
    tenant: str
    app: str
    model: str
    tier: str
    state: str
    now_ns: int
    arrived_ns: int
    steps: tuple[Step, ...]
    standing: Standing | None
    cost_micro: int
    currency: str


class Records(msgspec.Struct, frozen=True):
    """Records of a period in order of arrival. `after` asks for those that follow, None where these are the last.

    A filter looks through so many records at once. Where there may be more it says until when (newest first: back to
    when) it has looked, and `after` goes on from there.
    """

    records: tuple[Attempt, ...]
    after: str | None
    looked_ns: int | None = None
