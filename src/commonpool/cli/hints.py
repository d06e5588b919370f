"""`commonpool hints`: what could be gained by moving work together."""

from collections.abc import Iterator

import typer

from commonpool.api import text
from commonpool.api.wire import nodes as wire
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.core.explain import duration
from commonpool.core.hints import Hint


def hints(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show what could be gained by moving work together, and what that would cost; nothing is moved."""
    found = connect(control, token_file).get("/admin/v1/hints", wire.Hints)
    if as_json:
        emit(found)
    elif not found.hints:
        typer.echo("no hints: no device or node would be free as a whole if its work were moved to others")
    else:
        from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

        out = show.console()
        for hint in found.hints:
            for line in lines(hint):
                out.print(show.clean(line))


def lines(hint: Hint) -> Iterator[str]:
    """A hint as people read it: what to empty, what that gives and costs, and each step."""
    gains = [f"{hint.whole_gpus} whole gpu(s)"] if hint.whole_gpus else []
    gains += [f"{hint.free_nodes} free node(s)"] if hint.free_nodes else []
    if hint.defragmented_milli_gpu > 0:
        gains.append(f"{text.gpus(hint.defragmented_milli_gpu)} gpu less that is free and of no use")
    yield f"empty {hint.kind} {hint.name}: gains {', '.join(gains)}; costs {duration(hint.cost_ns)}"
    for step in hint.steps:
        where = f"{step.to_node} ({', '.join(step.to_devices)})" if step.to_devices else step.to_node
        yield f"  drain {step.holder} on {', '.join(step.devices)}: {duration(step.cost_ns)}; it would fit on {where}"
