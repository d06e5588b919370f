"""`commonpool replicas`: the engines that run, what was sent to them, and what they say of themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonpool.api import text
from commonpool.api.wire.status import EngineStatus, Replicas, ReplicaStatus, Status
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNKNOWN = "unknown"


def replicas(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show the replicas: what was sent to each, and what its engine says of itself."""
    client = connect(control, token_file)
    found = client.get("/admin/v1/replicas", Replicas)
    if as_json:
        emit(found)
        return
    now_ns = client.get("/admin/v1/status", Status).now_ns
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    out.print(picture(out, found.replicas, now_ns))


def picture(out: "Console", found: Sequence[ReplicaStatus], now_ns: int) -> "RenderableType":
    """A line for each replica."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    if not found:
        return "no replicas"
    columns = [
        *(show.Column(title, right=False) for title in ("replica", "model", "state")),
        *map(show.Column, ("for", "gpu", "sent", "running", "waiting", "kv cache")),
        show.Column("where", right=False),
    ]
    return show.table(out, columns, [_line(each, now_ns) for each in found])


def _line(replica: ReplicaStatus, now_ns: int) -> tuple[str, ...]:
    return (
        replica.id,
        replica.model,
        replica.state,
        text.age(replica.since_ns, now_ns),
        text.gpus(replica.milli_gpu),
        f"{replica.running} of {replica.slots}",
        *_engine(replica.engine),
        ", ".join(replica.devices) or replica.node or replica.address or text.NONE,
    )


def _engine(engine: EngineStatus | None) -> tuple[str, str, str]:
    """What runs and waits in it, and how full its KV cache is."""
    if engine is None or engine.running is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    foreign = f" ({engine.foreign} not from here)" if engine.foreign else ""
    return (
        f"{engine.running}{foreign}",
        UNKNOWN if engine.waiting is None else str(engine.waiting),
        UNKNOWN if engine.kv_milli is None else f"{engine.kv_milli // 10} %",
    )
