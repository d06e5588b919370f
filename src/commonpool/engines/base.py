"""What an engine adapter says about an engine, as data: paths, names, and where it departs from the OpenAI API."""

import ssl

import msgspec


class Adapter(msgspec.Struct, frozen=True):
    """One kind of engine.

    usage_per_choice: its `usage` counts one choice only, so a request with n > 1 reports n usage chunks in a stream
    and the first choice's alone otherwise. tokenize_path: where text is counted in tokens, None when it cannot.
    """

    name: str
    health_path: str = "/health"
    metrics_path: str | None = "/metrics"
    usage_per_choice: bool = False
    tokenize_path: str | None = None


class Target(msgspec.Struct, frozen=True):
    """How to reach one running replica. `base_path` precedes `/v1/...`; `authorization` is the whole header value.

    `served_model` replaces the body's `model`.
    """

    replica_id: str
    host: str
    port: int
    adapter: Adapter
    served_model: str
    base_path: str = ""
    authorization: bytes | None = None
    tls: ssl.SSLContext | None = None
