"""What the machine wants done. The owner performs effects in order; none of them needs an answer."""

import msgspec

from commonpool.core.model import Reason, UsageRecord, Wait


class Dispatch(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Send this request to this replica now. The slot is taken; an `Ended` with this attempt gives it back.

    `waits` says what it waited for, in order.
    """

    request_id: str
    attempt: int
    replica_id: str
    wait_ns: int
    waits: tuple[Wait, ...] = ()


class Start(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Start this job now. What it asked for is taken; a `JobEnded` with this attempt gives it back."""

    job_id: str
    attempt: int
    wait_ns: int
    waits: tuple[Wait, ...] = ()


class Refuse(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Answer with an error. Nothing was taken. `message` is one sentence: which limit, whose, and what to do.

    `retry_after_ns` is None where trying again cannot help.
    """

    request_id: str
    reason: Reason
    message: str
    retry_after_ns: int | None


class Fail(msgspec.Struct, frozen=True, gc=False, tag=True):
    """No attempt is left (or none was asked for): answer the client with the error of the last one."""

    request_id: str


class Settle(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Keep this record for ever, before the answer's last byte is sent."""

    record: UsageRecord


Effect = Dispatch | Start | Refuse | Fail | Settle
