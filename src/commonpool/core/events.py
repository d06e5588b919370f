"""What happens to the machine. Each event is a fact; `now` comes beside it in `Machine.handle`.

Events are tagged, so that a log of them can be kept and decoded as `Event`: replayed it gives the same effects.
"""

import msgspec

from commonpool.core.model import Fault, Job, Limits, Node, Outcome, Policy, Replica, Request, Usage


class Configured(msgspec.Struct, frozen=True, tag=True):
    """A policy is in force from now on. What runs goes on; what waits is judged by the new policy."""

    policy: Policy


class Arrived(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A request arrived, identified and parsed. One whose id waits or runs already is not taken twice.

    One that was kept for later came at `arrived`, an absolute time, and `attempts` were made; 0 is now.
    """

    request: Request
    attempts: int = 0
    arrived: int = 0


class Recalled(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A request arrived whose answer is kept, from when its tenant asked the same: it needs no slot and no quota.

    `usage` is that of the answer, `bytes_out` its size. It counts for limits and budget as any other.
    """

    request: Request
    usage: Usage
    bytes_out: int = 0


class Ended(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The attempt that was dispatched has ended, whatever ended it. A second `Ended` for one attempt does nothing.

    `first_token_at` is the absolute time of the answer's first byte, or of its first event where the engine streams
    it; 0 when there was none. `status` is what the client got (499 when it went away). `retry` asks for another
    attempt: only sensible while the client has got nothing. Failed attempts are at most two; one that was taken off its
    replica (cancelled, with retry) does not count. `bytes_out` is the size of the answer. `fault` is whose fault it is
    that an attempt failed; of others it says nothing. `reason` is why it was ended before its own end, where that was
    for a limit.
    """

    request_id: str
    attempt: int
    outcome: Outcome
    usage: Usage
    status: int = 200
    first_token_at: int = 0
    retry: bool = False
    bytes_out: int = 0
    fault: Fault = Fault.ENGINE
    reason: str = ""


class Produced(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A request that runs has produced `tokens_out` so far. Optional: it keeps the counters right before the end."""

    request_id: str
    tokens_out: int


class Submitted(msgspec.Struct, frozen=True, tag=True):
    """A job is to run as soon as its tenant may have what it asks for.

    `again`: it was taken before this machine was made, at `arrived` (an absolute time), and `attempts` were made. So it
    is not refused for a full queue, nor because a node is away.
    """

    job: Job
    attempts: int = 0
    again: bool = False
    arrived: int = 0


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """The attempt at a job that was started has ended, whatever ended it. `retry` puts it back in its queue.

    `ended` is when, an absolute time, where that was before now. `exited`: its own command ended it, well or badly, so
    that what it held is charged; what failed for our reasons is not. `cpu_ns` and `memory_mib_s` (MiB × seconds) are
    what its processes took of the machine, as far as that was measured.
    """

    job_id: str
    attempt: int
    outcome: Outcome
    retry: bool = False
    ended: int = 0
    exited: bool = False
    cpu_ns: int = 0
    memory_mib_s: int = 0


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Nobody wants a waiting request or job any more. For one that runs, `Ended` or `JobEnded` is the event."""

    request_id: str


class ReplicaReady(msgspec.Struct, frozen=True, tag=True):
    """A replica takes requests from now on. Ids are not used again while anything runs on them.

    `engine` is what one was started with that was there before this machine (`Deployment.engine`).
    """

    replica: Replica
    engine: str | None = None


class ReplicaDraining(msgspec.Struct, frozen=True, tag=True):
    """A replica gets nothing new; what runs on it goes on."""

    replica_id: str


class ReplicaLost(msgspec.Struct, frozen=True, tag=True):
    """A replica is gone: it was stopped, broke, or never came up. `reason` says why, a sentence; "" when it was asked.

    The gateway sees each of its connections break and reports an `Ended` for each attempt.
    """

    replica_id: str
    reason: str = ""


class DevicesChanged(msgspec.Struct, frozen=True, tag=True):
    """A pool has this many GPUs from now on (devices were lost, or came back), whatever its policy says.

    Guarantees above it are scaled pro rata; what runs goes on until it is reported ended.
    """

    pool: str
    milli_gpu: int


class NodeSeen(msgspec.Struct, frozen=True, tag=True):
    """A node is there, and this is what it is from now on. The first one of a pool makes it a pool of known nodes.

    Devices that it does not have any more, or that are not healthy, are withdrawn; what runs there is reported ended by
    whoever runs it.
    """

    node: Node


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    """A node is gone. What ran there is reported ended by whoever ran it."""

    name: str


class DeviceLoad(msgspec.Struct, frozen=True):
    """How busy the hardware of a device is: `busy` in thousandths of the time, and what is in use of its memory.

    `device` is its id without the node's name. None is not known.
    """

    device: str
    busy: int | None = None
    used_mib: int | None = None


class HostLoad(msgspec.Struct, frozen=True, tag=True):
    """How busy a node's own resources are, in thousandths: CPU time, memory, network. Sent every few seconds.

    `devices` are those whose hardware says how busy it is; people are shown it, and nothing is decided by it.
    """

    node: str
    cpu: int
    memory: int
    network: int = 0
    devices: tuple[DeviceLoad, ...] = ()


class Resumed(msgspec.Struct, frozen=True, tag=True):
    """A request that was dispatched before this machine was made still runs on `replica_id`, which is ready.

    Its slot, quota and loans are taken, whatever is free. `arrived` and `started` are absolute times.
    """

    request: Request
    attempt: int
    arrived: int
    started: int
    replica_id: str


class JobResumed(msgspec.Struct, frozen=True, tag=True):
    """A job that was started before this machine was made still runs on `devices`; as `Resumed`.

    `milli_gpu` and `memory_mib` are what it was given of each of them (`effects.Start`); 0 where that is not known.
    Where its tenant or pool is gone nothing is taken.
    """

    job: Job
    attempt: int
    arrived: int
    started: int
    devices: tuple[str, ...] = ()
    milli_gpu: int = 0
    memory_mib: int = 0


class Released(msgspec.Struct, frozen=True, tag=True):
    """So much of a tenant's guarantee is the pool's until it is taken back with 0. What is in use is never touched."""

    tenant: str
    milli_gpu: int


class Granted(msgspec.Struct, frozen=True, tag=True):
    """An operator raises a tenant's elastic_cap until a time; its hard_cap still holds. 0 takes a grant back."""

    tenant: str
    elastic_cap: int
    until: int


class Spent(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What the books say a tenant has spent in this billing period: it sets, and adds to nothing.

    `micro` is of all up to `booked_until_ns`, an absolute time: the end of a closed hour, or now. It includes what ran
    then, up to that time. The machine adds what is used after it and has ended. The period ends at `until_ns`; from
    then on, until this is told again, spending counts from 0. One about a period that is over, or a time before that
    of the last, does nothing.
    """

    tenant: str
    micro: int
    booked_until_ns: int
    until_ns: int


class KeyLimited(msgspec.Struct, frozen=True, tag=True):
    """A key has these limits from now on; its requests name it. What is used of them stays used.

    Told before anything comes with the key. What came earlier is not counted, where it had no limits then.
    """

    key: str
    limits: Limits


class KeyRevoked(msgspec.Struct, frozen=True, tag=True):
    """A key counts no more. What waits with it is refused; what runs goes on, and is not tried again.

    It is never heard of again as a live one.
    """

    key: str
    tenant: str


class Ticked(msgspec.Struct, frozen=True, tag=True):
    """Time passed. Sent about once a second, so that requests for a model without replicas are not kept for ever."""


Event = (
    Arrived
    | Recalled
    | Ended
    | Produced
    | Submitted
    | JobEnded
    | Cancelled
    | Configured
    | ReplicaReady
    | ReplicaDraining
    | ReplicaLost
    | DevicesChanged
    | NodeSeen
    | NodeLost
    | HostLoad
    | Resumed
    | JobResumed
    | Released
    | Granted
    | Spent
    | KeyLimited
    | KeyRevoked
    | Ticked
)
