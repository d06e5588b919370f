"""`commonpool nodes`: the machines, their GPUs, and who has them."""

from typing import TYPE_CHECKING

from commonpool.api import text
from commonpool.api.wire import nodes as wire
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import format_cores, format_memory
from commonpool.core.pictures import DeviceView, HolderView, NodeView, PoolDevices

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def nodes(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show the nodes, their GPUs, and who has what of them."""
    now = connect(control, token_file).get("/admin/v1/nodes", wire.Nodes)
    if as_json:
        emit(now)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    out.print(picture(out, now))


def picture(out: "Console", now: wire.Nodes) -> "RenderableType":
    """The devices in a table, then what there is to say of their nodes and pools."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import
    from rich.text import Text  # noqa: PLC0415 - the same

    from commonpool.cli import show  # noqa: PLC0415 - the same

    said = [*map(_node, now.nodes), *map(_pool, now.pools)]
    rows = [_device(device) for node in now.nodes for device in node.devices]
    if not rows:
        return Group(*map(show.clean, said))
    columns = [
        *(show.Column(title, right=False) for title in ("device", "gpu")),
        *map(show.Column, ("memory", "free", "free memory", "busy", "used memory")),
        *(show.Column(title, right=False) for title in ("held by", "state")),
    ]
    return Group(show.table(out, columns, rows), Text(), *map(show.clean, said))


def _device(device: DeviceView) -> tuple[str, ...]:
    return (
        device.id,
        " ".join(word for word in (device.model, device.profile) if word) or text.NONE,
        format_memory(device.memory_mib) if device.memory_mib else text.NONE,
        f"{_gpus(device.free_milli_gpu)} of {text.gpus(device.milli_gpu)}",
        text.NONE if device.free_memory_mib is None else format_memory(max(0, device.free_memory_mib)),
        "unknown" if device.busy is None else f"{device.busy // 10} %",
        "unknown" if device.used_memory_mib is None else format_memory(device.used_memory_mib),
        ", ".join(map(_holder, device.holders)) or text.NONE,
        "healthy" if device.healthy else "not healthy",
    )


def _holder(holder: HolderView) -> str:
    whose = holder.model or (f"job of {holder.tenant}" if holder.tenant else "unknown")
    return f"{holder.id} ({whose}) {text.gpus(holder.milli_gpu)}"


def _node(node: NodeView) -> str:
    own = [f"isolation {node.isolation}"]
    if node.cpu_milli:
        own.append(format_cores(node.cpu_milli))
    if node.memory_mib:
        own.append(format_memory(node.memory_mib))
    if node.driver:
        own.append(f"driver {node.driver}")
    if node.runtimes:
        own.append(f"runtimes {', '.join(node.runtimes)}")
    if node.load is not None:
        own.append(
            f"cpu {node.load.cpu // 10} %, memory {node.load.memory // 10} %, network {node.load.network // 10} % busy"
        )
    if node.window is not None:
        own.append(f"maintained from {text.moment(node.window.start_ns)} to {text.moment(node.window.end_ns)}")
    return f"node {node.name} (pool {node.pool}): {'; '.join(own)}"


def _pool(pool: PoolDevices) -> str:
    there = f"pool {pool.pool}: {_gpus(pool.free_milli_gpu)} of {text.gpus(pool.capacity_milli_gpu)} gpu free"
    if not pool.known:
        return f"{there}; its nodes are not known, so its GPUs are only counted"
    lost = f", {text.gpus(pool.fragmented_milli_gpu)} of that fragmented" if pool.fragmented_milli_gpu else ""
    return f"{there}{lost}"


def _gpus(milli_gpu: int) -> str:
    """More may be held than is there."""
    return text.gpus(milli_gpu) if milli_gpu >= 0 else f"-{text.gpus(-milli_gpu)}"
