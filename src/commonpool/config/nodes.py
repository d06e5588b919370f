"""From a declared machine to the node that the core knows, and what it comes to in GPUs.

Devices are `<node>/<index>`, slices of one `<node>/<index>.<slice>`, both counted from 0. Slices are not linked with
anything, which is how MIG works.
"""

from commonpool.config.mig import card_of
from commonpool.config.structs import NodeConfig
from commonpool.core.model import Device, Node


def declared(node: NodeConfig) -> Node:
    """What the configuration alone says of a node; what it does not say is unknown."""
    return Node(
        name=node.name,
        pool=node.pool,
        devices=tuple(device for index in range(node.gpus or 0) for device in _devices(node, index)),
        cpu_milli=node.cpu_milli or 0,
        memory_mib=node.memory_mib or 0,
        isolation=node.isolation,
        runtimes=node.runtimes or (),
        driver=node.driver or "",
        windows=node.windows,
    )


def milli_gpu(node: NodeConfig) -> int:
    """What its declared devices come to, in use or not."""
    return sum(device.milli_gpu for device in declared(node).devices)


def island_of(node: str, indexes: tuple[int, ...]) -> str:
    """The name of the island that these devices of a node form: that of its first."""
    return f"{node}/{min(indexes)}"


def _devices(node: NodeConfig, index: int) -> list[Device]:
    whole = Device(
        id=f"{node.name}/{index}",
        model=node.gpu_model or "",
        memory_mib=node.gpu_memory_mib or 0,
        island=next((island_of(node.name, linked) for linked in node.links or () if index in linked), ""),
        healthy=index not in node.unhealthy,
    )
    profiles = (node.mig or {}).get(index)
    kind = card_of(whole.model, whole.memory_mib) if profiles else None
    if not profiles or kind is None:
        return [whole]
    return [
        Device(
            id=f"{whole.id}.{number}",
            model=whole.model,
            memory_mib=profile.memory_mib,
            milli_gpu=kind.milli_gpu(profile),
            profile=profile.name,
            healthy=whole.healthy,
        )
        for number, profile in enumerate(filter(None, map(kind.profile, profiles)))
    ]
