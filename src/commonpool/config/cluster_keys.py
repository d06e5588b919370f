"""The keys of pools and of their nodes. Reasons for the defaults are in docs/configuration.md."""

from typing import get_args

from commonpool.config import kinds
from commonpool.config.kinds import between, choice, positive, whole
from commonpool.config.resources import RESOURCES
from commonpool.config.shape import Either, Field, Record, Series, Table
from commonpool.config.structs import NodeConfig
from commonpool.core.model import Isolation, Pool, PoolRule

NODES_MAX = 2048
GPUS_MAX = 64  # of one node
INDEX = whole(0, GPUS_MAX - 1)

POOL = Record(
    (
        Field("gpus", positive(kinds.GPU), "GPUs that the pool has.", derived="those of its nodes"),
        Field(
            "rule",
            choice(*get_args(PoolRule)),
            "elastic lends idle guarantees; guaranteed lends nothing; dedicated belongs to one tenant.",
            default=Pool("", 0).rule,
        ),
        Field(
            "isolation",
            choice(*get_args(Isolation)),
            "What keeps its tenants apart: nothing, or a device, a node, or a node with its network serves one.",
            derived="rule elastic: shared; guaranteed: guaranteed; dedicated: node",
        ),
        Field(
            "resources",
            Record(
                tuple(
                    Field(key, positive(each.kind), f"All its {each.what} together.", derived="not counted")
                    for key, each in RESOURCES.items()
                )
            ),
            "What it has beside GPUs; one that is not named is not counted.",
        ),
    )
)
WINDOW = Record(
    (
        Field("from", kinds.INSTANT, "When it begins.", required=True),
        Field("until", kinds.INSTANT, "When it is over.", required=True),
    )
)
NODE = Record(
    (
        Field("pool", kinds.NAME, "Pool that its devices belong to.", derived="the only pool"),
        Field("gpus", whole(0, GPUS_MAX), "How many GPUs it has.", derived="discover: what is found"),
        Field("gpu_model", kinds.GPU_MODEL, "What GPUs they are.", derived="not known; discover: what is found"),
        Field(
            "gpu_memory",
            between(kinds.MEMORY, "1MiB", "1TiB"),
            "Memory of each GPU.",
            derived="not known, not counted; discover: what is found",
        ),
        Field(
            "links",
            Either(choice("all"), Series(Series(INDEX, GPUS_MAX, 2), GPUS_MAX)),
            "Which of its GPUs are linked with each other (NVLink): lists of indexes, or all.",
            derived="none; discover: what is found",
        ),
        Field(
            "mig",
            Table(Series(kinds.PROFILE, 8, 1, distinct=False), GPUS_MAX, 1, INDEX),
            "MIG profiles of those GPUs that are cut into slices, by index.",
            derived="none; discover: what is found",
        ),
        Field(
            "cpus",
            between(kinds.CORES, "0.1", "4096"),
            "CPU cores of the machine.",
            derived="not known, not counted; discover: what is found",
        ),
        Field(
            "memory",
            between(kinds.MEMORY, "256MiB", "64TiB"),
            "Main memory of the machine.",
            derived="not known, not counted; discover: what is found",
        ),
        Field(
            "isolation",
            choice(*get_args(Isolation)),
            "The strictest isolation that it can give.",
            default=NodeConfig("", "").isolation,
        ),
        Field("network", kinds.NETWORK, "The network that it has for itself, as isolation network demands."),
        Field(
            "runtimes",
            Series(kinds.NAME, 32),
            "What is installed there, as models ask for it.",
            derived="none; discover: what is found",
        ),
        Field("driver", kinds.VERSION, "Version of its GPU driver.", derived="not known; discover: what is found"),
        Field("maintenance", Series(WINDOW, 64), "When nothing may run there."),
        Field("unhealthy", Series(INDEX, GPUS_MAX), "GPUs that are out of use, by index."),
        Field(
            "discover",
            kinds.FLAG,
            "Whether what is not said is read from this machine.",
            default="false",
        ),
    )
)
