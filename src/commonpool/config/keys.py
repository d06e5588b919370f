"""Every key of `commonpool.yaml` and of a tenant's own file. Reasons for the defaults are in docs/configuration.md."""

from typing import get_args

import msgspec

from commonpool.config import kinds
from commonpool.config.access_keys import ACCESS
from commonpool.config.alert_keys import ALERTS
from commonpool.config.billing_keys import BUDGET, COSTS, PRICES, RETENTION
from commonpool.config.cluster_keys import NODE, NODES_MAX, POOL
from commonpool.config.kinds import choice, positive, whole
from commonpool.config.limits import LIMITS, OF_APPS, limits_record
from commonpool.config.quantities import format_duration, format_permille, format_size
from commonpool.config.resources import RESOURCES
from commonpool.config.shape import Field, Record, Series, Table, Tagged
from commonpool.config.structs import (
    AttachedEngine,
    Billing,
    Config,
    EmbeddedEngine,
    Listen,
    Submitters,
    Timeouts,
    Traces,
)
from commonpool.core.model import (
    NO_LIMITS,
    PRIORITY_MAX,
    Hardware,
    ReclaimPolicy,
    Residency,
    ReturnWhen,
    Scaling,
    Tenant,
)

# The structs hold the defaults; here they are only written the way people do.
_TIMEOUTS = Timeouts()
_LISTEN = Listen()
_SCALING = Scaling()
_TENANT = Tenant("", "", 0, 0, 0, {}, 0)
_CONFIG = {field.name: field.default for field in msgspec.structs.fields(Config)}

MAX_WAIT = "120s"
TIERS = {
    "interactive": {"queue_target": "2s", "first_token_target": "3s"},
    "batch": {"queue_target": "120s"},
}
PRIORITY = {"interactive": 9, "batch": 3}
DEFAULT_APP = "default"
TENANTS_MAX = 1000
REPLICAS_MAX = 256

TLS = Record(
    (
        Field("certificate", kinds.PATH, "PEM file: the certificate, then its chain."),
        Field("key", kinds.PATH, "PEM file: the certificate's key, without a password."),
        Field("client_ca", kinds.PATH, "PEM file: only clients with a certificate of one of these may connect."),
    )
)
EMBEDDED = Record(
    (
        Field("file", kinds.MODEL_FILE, "GGUF file: a path, or package:NAME/FILE of a Python package.", required=True),
        Field("threads", whole(1, 256), "CPU threads of each replica.", default=str(EmbeddedEngine("").threads)),
    )
)
ATTACHED = Record(
    (
        Field(
            "urls", Series(kinds.URL, 256, 1), "Base URL of each engine, without /v1; one replica each.", required=True
        ),
        Field(
            "adapter",
            choice("openai", "vllm", "sglang", "llamacpp"),
            "What kind of engine it is.",
            default=AttachedEngine(()).adapter,
        ),
        Field("credential", kinds.CREDENTIAL, "Where the engine's key is: env:NAME or file:PATH, never the key."),
        Field("devices", Series(kinds.DEVICES, 256, 1, distinct=False), "Devices of each engine, one entry a URL."),
        Field("served_model", kinds.SERVED_MODEL, "The model's name at the engine.", derived="the same name"),
    )
)
MODEL = Record(
    (
        Field(
            "version", kinds.VERSION, "Which build of the model; it is written into every usage record.", required=True
        ),
        Field("pool", kinds.NAME, "Pool whose GPUs its replicas hold.", derived="the only pool"),
        Field("gpu", positive(kinds.GPU), "GPUs that each replica holds.", derived="by gpu_memory or mig"),
        Field(
            "gpu_memory",
            positive(kinds.MEMORY),
            "Memory that it needs on each device.",
            derived="its part of the device",
        ),
        Field("mig", kinds.PROFILE, "MIG profile of the slice that each replica has."),
        Field("gpu_models", Series(kinds.GPU_MODEL, 16, 1), "GPU models that will do.", derived="all"),
        Field(
            "together",
            choice("node", "island"),
            "Where the devices of a replica are: on one node, or linked with each other.",
            default=Hardware().together,
        ),
        Field("runtime", kinds.NAME, "What must be installed on its node."),
        Field(
            "replicas",
            whole(0, REPLICAS_MAX),
            "The fewest replicas.",
            derived="1; residency on_demand or async: 0; attached: one a URL",
        ),
        Field("replicas_max", whole(1, REPLICAS_MAX), "The most replicas.", derived="replicas, at least 1"),
        Field(
            "residency",
            choice(*get_args(Residency)),
            "resident and standby are always there, on_demand while somebody asks, async when a start is worth it.",
            default=_SCALING.residency,
        ),
        Field(
            "idle_after",
            positive(kinds.DURATION),
            "How long nobody has asked when its replicas stop.",
            default=format_duration(_SCALING.idle_ns),
        ),
        Field(
            "start_deadline",
            positive(kinds.DURATION),
            "How long requests wait for its first replica.",
            default=format_duration(_SCALING.start_deadline_ns),
        ),
        Field("fallback", kinds.NAME, "Model of the same pool that answers when this one cannot."),
        Field("slots", whole(1, 4096), "Sequences that a replica runs at once.", required=True),
        Field("context", positive(kinds.TOKENS), "Tokens of one sequence, prompt and output together.", required=True),
        Field(
            "kv_tokens", positive(kinds.TOKENS), "Tokens that a replica's KV memory holds.", derived="slots × context"
        ),
        Field(
            "engine",
            Tagged(
                "kind",
                "embedded runs here, as child processes; attached runs elsewhere.",
                {"embedded": EMBEDDED, "attached": ATTACHED},
            ),
            "What runs the model.",
            required=True,
        ),
    )
)
TIER = Record(
    (
        Field("queue_target", positive(kinds.DURATION), "How long a request may wait."),
        Field("first_token_target", positive(kinds.DURATION), "How long the first token may take, from arrival."),
    )
)


def _unlent(default: str) -> tuple[Field, Field]:
    """The two ways to say which part of a guarantee is never lent."""
    return (
        Field("reserved", kinds.GPU, "Part of the guarantee that is never lent.", derived=default),
        Field("lending_limit", kinds.GPU, "Most of the guarantee that is lent.", derived="guaranteed less reserved"),
    )


GROUP = Record(
    (
        Field("parent", kinds.NAME, "The group that it belongs to.", derived="none: it is directly below the pool"),
        Field(
            "guaranteed",
            kinds.GPU,
            "GPUs that all below it can always have back; what is more than their own guarantees, they use first.",
            derived="what is guaranteed below it",
        ),
        *_unlent("0"),
        Field("elastic_cap", positive(kinds.GPU), "Most GPUs that all below it may use.", derived="no cap"),
    )
)


def _share(key: str) -> Record:
    kind = RESOURCES[key].kind
    return Record(
        (
            Field("guaranteed", kind, "What it can always have back.", derived="the same fraction as of the GPUs"),
            Field("elastic_cap", positive(kind), "Most that it may use.", derived="no cap"),
        )
    )


APP = Record(
    (
        Field("cost_center", kinds.COST_CENTER, "Who pays.", derived="none"),
        Field("limits", limits_record(OF_APPS, NO_LIMITS), "Its own limits, beside its tenant's."),
    )
)
TENANT = Record(
    (
        Field(
            "tenant",
            Record(
                (
                    Field("pool", kinds.NAME, "Pool that it draws on.", derived="the only pool"),
                    Field(
                        "group", kinds.NAME, "Group that it belongs to.", derived="none: it is directly below the pool"
                    ),
                    Field(
                        "guaranteed", kinds.GPU, "GPUs it can always have back.", derived="0; dedicated pool: all of it"
                    ),
                    Field("borrowable", kinds.FLAG, "Whether the idle part of the guarantee is lent.", default="true"),
                    *_unlent("0; borrowable: false: all of guaranteed"),
                    Field(
                        "headroom",
                        kinds.GPU,
                        "Part of the guarantee that stays unlent beyond what is in use, for instant starts.",
                        default=str(_TENANT.headroom),
                    ),
                    Field(
                        "elastic_cap",
                        kinds.GPU,
                        "Most GPUs it may use, borrowed ones included.",
                        derived="the pool's GPUs; in a pool with rule guaranteed: guaranteed",
                    ),
                    Field(
                        "hard_cap",
                        kinds.GPU,
                        "Never exceeded, whatever is granted for a while.",
                        derived="elastic_cap",
                    ),
                    Field(
                        "weight",
                        whole(1, 1000),
                        "Its share of what is left above the guarantees.",
                        default=str(_TENANT.weight),
                    ),
                    Field("models", Series(kinds.NAME, 256), "Models it may use.", derived="all of its pool"),
                    Field(
                        "resources",
                        Record(tuple(Field(key, _share(key), f"Its {RESOURCES[key].what}.") for key in RESOURCES)),
                        "Its parts of what the pool has beside GPUs.",
                    ),
                )
            ),
            "Its place and its quota.",
        ),
        Field(
            "queue",
            Record(
                (
                    Field(
                        "priority",
                        Table(whole(0, PRIORITY_MAX), 16, 1),
                        "Tiers it may use, each with its priority inside the tenant, 0 to 9, larger first.",
                        derived="interactive: 9 and batch: 3, those of them that are tiers",
                    ),
                    Field(
                        "max_wait",
                        positive(kinds.DURATION),
                        "After this wait a request goes to the front.",
                        default=MAX_WAIT,
                    ),
                    Field(
                        "fallback",
                        kinds.FLAG,
                        "Whether a model's fallback may answer what the model itself cannot within max_wait.",
                        default=str(_TENANT.fallback).lower(),
                    ),
                    Field(
                        "later",
                        kinds.FLAG,
                        "Whether what cannot be answered within max_wait is answered later, for clients that say so; "
                        "prompts are kept for that, encrypted.",
                        default="false",
                    ),
                )
            ),
            "How its requests wait.",
        ),
        Field(
            "reclaim",
            Record(
                (
                    Field(
                        "policy", choice(*get_args(ReclaimPolicy)), "How a loan comes back.", default=_TENANT.reclaim
                    ),
                    Field(
                        "return_when",
                        choice(*get_args(ReturnWhen)),
                        "When a loan comes back.",
                        default=_TENANT.return_when,
                    ),
                )
            ),
            "How what it borrows is given back.",
        ),
        Field("limits", limits_record(LIMITS, _TENANT.limits), "Its limits."),
        Field("budget", BUDGET, "What it may spend."),
        Field(
            "response_cache",
            positive(kinds.DURATION),
            "For how long an answer is given again to the same question.",
            derived="not at all",
        ),
        Field(
            "apps",
            Table(APP, 256),
            "Its business applications.",
            derived="default, which every tenant has",
        ),
    ),
    name="tenant",
)
OBSERVE = Record(
    (
        Field(
            "traces",
            Record(
                (
                    Field(
                        "endpoint",
                        kinds.COLLECTOR,
                        "Where traces of requests are sent: an OTLP collector over HTTP, without /v1/traces.",
                        derived="nowhere: there are none",
                    ),
                    Field(
                        "sample",
                        kinds.between(kinds.PERMILLE, "0%", "100%"),
                        "How many requests are traced, of those whose client does not say.",
                        default=format_permille(Traces().sample_permille),
                    ),
                )
            ),
            "Traces by OpenTelemetry.",
        ),
    )
)
ROOT = Record(
    (
        Field(
            "listen",
            Record(
                (
                    Field("gateway", kinds.ADDRESS, "Where applications connect.", default=str(_LISTEN.gateway)),
                    Field("control", kinds.ADDRESS, "Admin API, console and metrics.", default=str(_LISTEN.control)),
                    Field("gateway_tls", TLS, "TLS where applications connect; without it they speak plain HTTP."),
                    Field("control_tls", TLS, "TLS of the admin API, the console and the metrics."),
                )
            ),
            "The two listeners; port 0 picks a free one.",
        ),
        Field("state", kinds.PATH, "Folder for durable files, relative to this file.", default=str(_CONFIG["state"])),
        Field(
            "store",
            Record(
                (
                    Field(
                        "url",
                        kinds.STORE_URL,
                        "PostgreSQL database for usage records, keys, jobs and bills; with a password: env:NAME or "
                        "file:PATH, where the URL is.",
                        derived="a SQLite file in state",
                    ),
                )
            ),
            "Where records are kept once they have left the journal in state.",
        ),
        Field(
            "secrets",
            Record(
                (
                    Field(
                        "master_key",
                        kinds.MASTER_KEY,
                        "Where the key is that encrypts the data keys of tenants: file:PATH, env:NAME or "
                        "command:PROGRAM, never the key.",
                    ),
                    Field(
                        "previous_master_key",
                        kinds.MASTER_KEY,
                        "Where the one before it is, until `commonpool secrets rotate` has run.",
                    ),
                )
            ),
            "What is encrypted in the store, and with what.",
        ),
        Field(
            "body_max",
            kinds.between(kinds.SIZE, "1KiB", "1GiB"),
            "Largest request body; a larger one is answered 413.",
            default=format_size(_CONFIG["body_bytes_max"]),
        ),
        Field(
            "timeouts",
            Record(
                tuple(
                    Field(key, positive(kinds.DURATION), text, default=format_duration(getattr(_TIMEOUTS, f"{key}_ns")))
                    for key, text in (
                        ("header", "A client sending its request head."),
                        ("body", "Longest silence while a client of the gateway sends its body."),
                        ("idle", "A kept-alive connection between two requests."),
                        ("connect", "Reaching an engine."),
                        ("first_byte", "An engine's first byte after dispatch."),
                        ("stall", "Longest silence of an engine within an answer, or of a client reading it."),
                        ("drain", "Streams finishing when the product stops."),
                    )
                )
            ),
            "How long slow or silent parties are waited for.",
        ),
        Field(
            "jobs",
            Record(
                (
                    Field(
                        "submitters",
                        choice(*get_args(Submitters)),
                        "Who may submit jobs, which run as the product's user: operators alone, or tenants too.",
                        default=_CONFIG["job_submitters"],
                    ),
                    Field(
                        "users",
                        Table(kinds.USER, TENANTS_MAX),
                        "Users of the operating system that jobs run as, by tenant; needs root.",
                        derived="the product's own user",
                    ),
                )
            ),
            "Rules for jobs.",
        ),
        Field(
            "outgoing",
            Series(kinds.DESTINATION, 256),
            "Networks and hosts that the product may connect to.",
            derived="those that this file names",
        ),
        Field("access", ACCESS, "Who may come to the control plane."),
        Field("alerts", ALERTS, "Who is told what is wrong."),
        Field("observe", OBSERVE, "What is told to those who watch."),
        Field("pools", Table(POOL, 64, 1), "Sets of GPUs, each with one sharing rule.", required=True),
        Field("nodes", Table(NODE, NODES_MAX), "Machines of the pools; without them a pool only counts its GPUs."),
        Field("models", Table(MODEL, 256, 1), "What is served.", required=True),
        Field(
            "tiers",
            Table(TIER, 16, 1),
            "Service tiers: what a request is promised.",
            derived="interactive with queue_target 2s and first_token_target 3s, batch with queue_target 120s",
        ),
        Field("prices", PRICES, "What use costs.", required=True),
        Field("costs", COSTS, "What the platform costs beside the use of it, by the month."),
        Field(
            "retention",
            RETENTION,
            "How long records of requests are kept; bills and what they are made of stay.",
            default=format_duration(Billing().retention_ns),
        ),
        Field("groups", Table(GROUP, 256), "Divisions: inner nodes of the quota tree."),
        Field("tenants", Table(TENANT, TENANTS_MAX), "Who gets quota and a bill."),
        Field(
            "include",
            Series(kinds.INCLUDE, 100),
            "Files of one tenant each, named by file name, relative to this file.",
        ),
    )
)
