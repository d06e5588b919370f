"""What a simulated pool consists of: replicas, how fast they are, and how often they fail."""

import msgspec

from commonpool.core.model import Replica


class Speed(msgspec.Struct, frozen=True):
    """How fast one replica is. Nanoseconds.

    A prompt takes `prefill_token_ns` a token, and everything else on the replica waits for it. Then a step, which gives
    each running sequence one token, takes `step_ns + sequences × step_sequence_ns`. `load_ns` is from the start of an
    engine to its first request.
    """

    prefill_token_ns: int
    step_ns: int
    step_sequence_ns: int
    load_ns: int


class Serving(msgspec.Struct, frozen=True):
    """A replica, its speed, and its context: where prompt and output of a sequence reach it the output is cut."""

    replica: Replica
    speed: Speed
    context_tokens: int


class Engine(msgspec.Struct, frozen=True):
    """What a replica of a model is like when the machine has one started: its speed and context, as in `Serving`."""

    speed: Speed
    context_tokens: int


class Failures(msgspec.Struct, frozen=True):
    """Each replica fails after `mtbf_ns` and is repaired in `repair_ns`, both the means of exponential laws.

    One of a model whose replicas follow demand is not repaired: the machine has another one started.
    """

    mtbf_ns: int
    repair_ns: int


class Cluster(msgspec.Struct, frozen=True):
    """All replicas. Those of a warm cluster are ready before the first arrival; else each has to load first.

    `engines` are those of the models whose replicas follow demand; `replicas` has none of these.
    """

    replicas: tuple[Serving, ...] = ()
    failures: Failures | None = None
    warm: bool = True
    engines: dict[str, Engine] = {}
