"""What an engine adapter says about an engine, as data: paths, names, and where it departs from the OpenAI API."""

import ssl

import msgspec


class MetricNames(msgspec.Struct, frozen=True):
    """What an engine calls what is read of it (`engines.gauges`); the names of its versions, tried in order.

    `running` and `waiting` are sequences, `kv_use` is a part of 1. `work` grows as long as it works: for engines whose
    gauges keep their last values when they stop. Empty where it has no such thing.
    """

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_use: tuple[str, ...] = ()
    work: tuple[str, ...] = ()


class Adapter(msgspec.Struct, frozen=True):
    """One kind of engine.

    frees_streams_only: closing the connection stops a stream, but not a request that is answered in one piece; ask
    it for a stream always, and put the answer together with `engines.assemble`. usage_per_choice: its stream reports
    the `usage` of each choice by itself. progress_field: a boolean field of the body that makes a stream carry an
    event for each part of the prompt that was read, which is what lets the engine notice that a client left before
    the first token; such events have a `prompt_progress` and are not for clients.

    What it offers to keep tenants apart in its prompt cache, as fields of the body (`gateway.caches`): salt_field, a
    text under which alone a prompt is found again; cache_field, whether anything found may be used; slot_field, the
    number of the slot that it runs in. Of an engine with slots nothing is used where others may send to it, too.
    """

    name: str
    health_path: str = "/health"
    metrics_path: str | None = "/metrics"
    metric_names: MetricNames | None = None
    usage_per_choice: bool = False
    frees_streams_only: bool = False
    progress_field: str | None = None
    salt_field: str | None = None
    cache_field: str | None = None
    slot_field: str | None = None


class Target(msgspec.Struct, frozen=True):
    """How to reach one running replica. `base_path` precedes `/v1/...`; `authorization` is the whole header value.

    `served_model` replaces the body's `model`, which is `model` here, in that `build` (`Deployment.engine`); "" is not
    known. `destinations` are the hosts and networks that it has to be among, None for any (`config.outgoing`).
    """

    replica_id: str
    host: str
    port: int
    adapter: Adapter
    served_model: str
    base_path: str = ""
    authorization: bytes | None = None
    tls: ssl.SSLContext | None = None
    model: str = ""
    build: str = ""
    destinations: tuple[str, ...] | None = None

    @property
    def url(self) -> str:
        """The address for people, without the credential."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.base_path}"

    def __repr__(self) -> str:
        """Without the credential, so that it cannot get into a log."""
        return f"Target({self.replica_id} at {self.url}, {self.adapter.name})"
