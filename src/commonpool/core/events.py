"""What happens to the machine. Each event is a fact; `now` comes beside it in `Machine.handle`."""

import msgspec

from commonpool.core.model import Outcome, Policy, Replica, Request, Usage


class Configured(msgspec.Struct, frozen=True):
    """A policy is in force from now on. What runs goes on; what waits is judged by the new policy."""

    policy: Policy


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A request arrived, identified and parsed."""

    request: Request


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The attempt that was dispatched has ended, whatever ended it. A second `Ended` for one attempt does nothing.

    `first_token_at` is the absolute time of the answer's first byte, or of its first event where the engine streams
    it; 0 when there was none. `status` is what the client got (499 when it went away). `retry` asks for another
    attempt: only sensible while the client has got nothing.
    """

    request_id: str
    attempt: int
    outcome: Outcome
    usage: Usage
    status: int = 200
    first_token_at: int = 0
    retry: bool = False


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The client of a request that still waits went away. For one that runs, `Ended` is the event."""

    request_id: str


class ReplicaReady(msgspec.Struct, frozen=True):
    """A replica takes requests from now on."""

    replica: Replica


class ReplicaDraining(msgspec.Struct, frozen=True):
    """A replica gets nothing new; what runs on it goes on."""

    replica_id: str


class ReplicaLost(msgspec.Struct, frozen=True):
    """A replica is gone. The gateway sees each of its connections break and reports an `Ended` for each attempt."""

    replica_id: str


class Ticked(msgspec.Struct, frozen=True):
    """Time passed. Sent about once a second, so that requests for a model without replicas are not kept for ever."""


Event = Arrived | Ended | Cancelled | Configured | ReplicaReady | ReplicaDraining | ReplicaLost | Ticked
