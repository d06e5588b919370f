"""The configuration as frozen structs: what `commonpool.yaml` says, checked once, with every default filled in.

`Config.policy` is the part that the core decides by; the rest says where things listen, run and are kept.
"""

from pathlib import Path
from typing import Literal

import msgspec

from commonpool.core.alerts import Severity
from commonpool.core.billing import SharedCost
from commonpool.core.model import Hardware, Isolation, Lending, Policy, Residency, Scaling, Window

RoleBy = Literal["account", "group", "email", "subject"]
Submitters = Literal["operators", "tenants"]
ChannelKind = Literal["webhook", "email", "feishu", "dingtalk", "wecom", "slack"]
MailTls = Literal["starttls", "implicit", "none"]
Steps = tuple[tuple[int, int], ...]  # prices of a meter: from when (ns), micro-units for one of its units; ascending


class Address(msgspec.Struct, frozen=True):
    """Where a listener binds. Port 0 picks a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Tls(msgspec.Struct, frozen=True):
    """PEM files of a listener: its certificate with the chain, the key, and whose clients alone may connect.

    `client_ca` None: all clients may.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class Listen(msgspec.Struct, frozen=True):
    """The two listeners: the data plane (`gateway`) and the control plane. Without TLS they speak plain HTTP."""

    gateway: Address = Address("127.0.0.1", 8080)
    control: Address = Address("127.0.0.1", 8081)
    gateway_tls: Tls | None = None
    control_tls: Tls | None = None


class EmbeddedEngine(msgspec.Struct, frozen=True, tag_field="kind", tag="embedded"):
    """The engine that comes with the product: llama.cpp in a supervised child process.

    `file` is a GGUF file: a path, or `package:NAME/FILE` for one that an installed Python package carries.
    """

    file: str
    threads: int = 1


class AttachedEngine(msgspec.Struct, frozen=True, tag_field="kind", tag="attached"):
    """Engines that run elsewhere, one replica per URL. `credential` is `env:NAME` or `file:PATH`, never the secret.

    `devices` are the ids of those that the engine at each URL has; () where the pool's nodes are not known.
    """

    urls: tuple[str, ...]
    adapter: Literal["openai", "vllm", "sglang", "llamacpp"] = "openai"
    credential: str | None = None
    served_model: str | None = None  # the model's name at the engine; None: the same name
    devices: tuple[tuple[str, ...], ...] = ()


class Model(msgspec.Struct, frozen=True):
    """A model that is served: its engine, the shape of each replica, and how many there are.

    `milli_gpu` is what each replica holds; `slots` sequences run on it at once, each with `context_tokens`.
    `kv_tokens` is the replica's whole KV memory in tokens. `hardware` is what a replica asks for, as it is written;
    None where that is GPUs of a pool without nodes. `replicas` is the fewest there are; the rest is as in `Scaling`.
    """

    name: str
    version: str
    pool: str
    milli_gpu: int
    replicas: int
    slots: int
    context_tokens: int
    kv_tokens: int
    engine: EmbeddedEngine | AttachedEngine
    replicas_max: int = 1
    residency: Residency = "resident"
    idle_ns: int = Scaling().idle_ns
    start_deadline_ns: int = Scaling().start_deadline_ns
    hardware: Hardware | None = None
    fallback: str | None = None


class NodeConfig(msgspec.Struct, frozen=True):
    """A machine of a pool as it is declared. None is not said: not known, or with `discover` read there.

    Devices are named by their index, from 0. `links` are those that are linked with each other. `mig` are the profiles
    of those that are cut into slices. `unhealthy` are out of use. `network` is the one that it has for itself (CIDR).
    """

    name: str
    pool: str
    gpus: int | None = None
    gpu_model: str | None = None
    gpu_memory_mib: int | None = None
    links: tuple[tuple[int, ...], ...] | None = None
    mig: dict[int, tuple[str, ...]] | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None
    isolation: Isolation = "node"
    runtimes: tuple[str, ...] | None = None
    driver: str | None = None
    windows: tuple[Window, ...] = ()
    unhealthy: tuple[int, ...] = ()
    discover: bool = False
    network: str | None = None


class App(msgspec.Struct, frozen=True):
    """A business application of a tenant."""

    name: str
    cost_center: str = ""


class Timeouts(msgspec.Struct, frozen=True):
    """Bounds on slow or silent parties, nanoseconds. Reasons for the defaults are in docs/configuration.md."""

    header_ns: int = 10_000_000_000  # a client sending its request head
    body_ns: int = 60_000_000_000  # the longest silence while a client of the gateway sends its body
    idle_ns: int = 75_000_000_000  # a kept-alive connection between requests
    connect_ns: int = 3_000_000_000  # reaching an engine
    first_byte_ns: int = 600_000_000_000  # an engine's first byte after dispatch
    stall_ns: int = 120_000_000_000  # the longest silence of an engine within an answer, or of a client reading it
    drain_ns: int = 30_000_000_000  # streams finishing when the product stops


class Billing(msgspec.Struct, frozen=True):
    """What bills are made by, beside the prices of GPU time: those are `Policy.prices`, which the core reads.

    `lending` is by pool, `meters` by name of `core.ledger.METERS`; what is not there is lent at the whole price, or not
    charged. Records are kept for `retention_ns` after their end, postings for ever.
    """

    time_zone: str = "UTC"
    lending: dict[str, Lending] = {}
    meters: dict[str, Steps] = {}
    costs: tuple[SharedCost, ...] = ()
    retention_ns: int = 90 * 86_400_000_000_000


class Oidc(msgspec.Struct, frozen=True):
    """An OpenID Connect issuer whose people may log in, and whose machines may call with bearer tokens.

    `client_secret` is `env:NAME` or `file:PATH`, None for a public client. `audience` is that of bearer tokens; None
    where none are taken. `groups` is the claim that lists somebody's groups.
    """

    issuer: str
    client_id: str
    client_secret: str | None = None
    audience: str | None = None
    groups: str = "groups"


class Role(msgspec.Struct, frozen=True):
    """Somebody is something in a tenant, or on the platform where `tenant` is None. `by` says what `who` is."""

    role: str
    tenant: str | None
    by: RoleBy
    who: str


class Access(msgspec.Struct, frozen=True):
    """Who may come to the control plane.

    `local`: a program on this machine that shows no credential is a platform-admin. `url` is where browsers reach the
    control plane, None where that is its own address. `policies` is a folder of policies beside the product's own.
    """

    local: bool = True
    url: str | None = None
    policies: Path | None = None
    oidc: Oidc | None = None
    roles: tuple[Role, ...] = ()


class Secrets(msgspec.Struct, frozen=True):
    """Where the master key is, and the one before it while it is being changed: `file:`, `env:` or `command:`."""

    master_key: str | None = None
    previous_master_key: str | None = None


class Mail(msgspec.Struct, frozen=True):
    """How e-mails are sent: through which server, from whom, to whom. `password` is `env:NAME` or `file:PATH`."""

    server: Address
    sender: str
    to: tuple[str, ...]
    tls: MailTls = "starttls"
    user: str | None = None
    password: str | None = None


class Channel(msgspec.Struct, frozen=True):
    """Where alerts are told: those of this severity and worse, of one tenant, or of all where `tenant` is "".

    `url` is one, or `env:NAME` or `file:PATH` where it is; `secret`, that messages are signed with, is always such a
    place. `mail` is there for kind email alone.
    """

    name: str
    kind: ChannelKind
    tenant: str = ""
    severity: Severity = Severity.WARNING
    url: str | None = None
    secret: str | None = None
    mail: Mail | None = None


class Alerts(msgspec.Struct, frozen=True):
    """Who is told what is wrong, and when. `quiet` are hours of the day in `time_zone`, from and until; None: none."""

    channels: dict[str, Channel] = {}
    group_wait_ns: int = 30_000_000_000
    repeat_ns: int = 4 * 3_600_000_000_000
    quiet: tuple[int, int] | None = None
    time_zone: str = "UTC"


class Traces(msgspec.Struct, frozen=True):
    """Where traces of requests are sent: the base URL of an OTLP collector, None: nowhere.

    `sample_permille` of a thousand requests are traced, of those whose client does not say.
    """

    endpoint: str | None = None
    sample_permille: int = 100


class Observe(msgspec.Struct, frozen=True):
    """What is told to those who watch."""

    traces: Traces = Traces()


class Config(msgspec.Struct, frozen=True):
    """A whole, valid configuration. `apps` is by tenant, then by app name. `state` is where durable files are kept.
    `store_url` is a PostgreSQL database, or `env:NAME` or `file:PATH` where its URL is; None for SQLite in `state`.
    `job_submitters` says whose keys may submit jobs. `job_users` are the users of the operating system that they run
    as, by tenant; empty: they run as the product's. `response_cache_ns` is for how long answers are kept, by tenant.
    `later` are the tenants of which what cannot be answered within max_wait is answered later, where its client wants.
    `outgoing` are the hosts and networks that may be connected to; None: those that are named here.

    `warnings` are sentences about what is allowed and yet hardly meant, each with its file, line and key.
    """

    policy: Policy
    models: dict[str, Model]
    apps: dict[str, dict[str, App]]
    currency: str
    nodes: dict[str, NodeConfig] = {}
    listen: Listen = Listen()
    timeouts: Timeouts = Timeouts()
    body_bytes_max: int = 32 * 1024 * 1024
    job_submitters: Submitters = "operators"
    job_users: dict[str, str] = {}
    response_cache_ns: dict[str, int] = {}
    later: tuple[str, ...] = ()
    outgoing: tuple[str, ...] | None = None
    billing: Billing = Billing()
    access: Access = Access()
    secrets: Secrets = Secrets()
    observe: Observe = Observe()
    alerts: Alerts = Alerts()
    state: Path = Path("var")
    store_url: str | None = None
    source: Path | None = None
    warnings: tuple[str, ...] = ()
