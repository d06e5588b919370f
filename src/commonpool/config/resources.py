"""The other resources under the keys that people write: beside GPUs, what a pool has and its tenants share."""

from collections.abc import Callable

import msgspec

from commonpool.config import kinds
from commonpool.config.kinds import Leaf
from commonpool.config.quantities import format_cores, format_memory
from commonpool.core.model import Resource


class Counted(msgspec.Struct, frozen=True):
    """One resource: its name in the core, how it is read and shown, and `what` it is in sentences."""

    resource: Resource
    kind: Leaf
    shown: Callable[[int], str]
    what: str


RESOURCES: dict[str, Counted] = {
    "gpu_memory": Counted("gpu_memory_mib", kinds.MEMORY, format_memory, "GPU memory"),
    "cpu_cores": Counted("cpu_milli", kinds.CORES, format_cores, "CPU cores"),
    "memory": Counted("memory_mib", kinds.MEMORY, format_memory, "main memory"),
}
