"""What the machine wants done. The owner performs effects in order; none of them needs an answer."""

import msgspec

from commonpool.core.model import Reason, Replica, UsageRecord, Wait


class Dispatch(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Send this request to this replica now. The slot is taken; an `Ended` with this attempt gives it back.

    `waits` says what it waited for, in order.
    """

    request_id: str
    attempt: int
    replica_id: str
    wait_ns: int
    waits: tuple[Wait, ...] = ()


class Recall(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Answer this request with what is kept. It has ended."""

    request_id: str


class Start(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Start this job now. What it asked for is taken; a `JobEnded` with this attempt gives it back.

    `node` is the first that it runs on and `devices` those that it holds, where the pool's nodes are known; `milli_gpu`
    and `memory_mib` are what it has of each of them.
    """

    job_id: str
    attempt: int
    wait_ns: int
    waits: tuple[Wait, ...] = ()
    node: str = ""
    devices: tuple[str, ...] = ()
    milli_gpu: int = 0
    memory_mib: int = 0


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Ask this job to save its state and end within `within_ns`: a lender needs back what it borrows.

    When it does, `JobEnded` with `retry` puts it back in its queue; when it does not, it goes on.
    """

    job_id: str
    attempt: int
    within_ns: int


class StartReplica(msgspec.Struct, frozen=True, tag=True):
    """Start an engine of this model as `replica.id` on `replica.devices`, which are taken; it is number `index`.

    `ReplicaReady` with this replica follows, or `ReplicaLost`, which gives the devices back.
    """

    replica: Replica
    index: int


class StopReplica(msgspec.Struct, frozen=True, tag=True):
    """End this replica: nothing runs on it any more, or its time to drain is over. `ReplicaLost` follows."""

    replica_id: str


class Refuse(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Answer with an error. Nothing was taken. `message` is one sentence: which limit, whose, and what to do.

    `retry_after_ns` is None where trying again cannot help. `later`: keep it and let it come again (`Arrived`), or have
    it refused once more without that; there is no record of this refusal.
    """

    request_id: str
    reason: Reason
    message: str
    retry_after_ns: int | None
    later: bool = False


class Fail(msgspec.Struct, frozen=True, gc=False, tag=True):
    """No attempt is left (or none was asked for): answer the client with the error of the last one."""

    request_id: str


class Settle(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Keep this record for ever, before the answer's last byte is sent."""

    record: UsageRecord


Effect = Dispatch | Recall | Start | Checkpoint | StartReplica | StopReplica | Refuse | Fail | Settle
