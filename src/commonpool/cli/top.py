"""`commonpool top`: who waits, who lends, what the models do and what was decided, live."""

import msgspec

from commonpool.api.wire.decisions import Decision
from commonpool.api.wire.status import Status
from commonpool.cli.client import connect
from commonpool.cli.following import look
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit


class Frame(msgspec.Struct, frozen=True):
    """What it shows, for machines."""

    status: Status
    decisions: tuple[Decision, ...]


def top(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show tenants by their waits, models and the last decisions, live.

    `q` quits, `s` sorts by something else, `p` pauses. Into a pipe it writes one frame.
    """
    client = connect(control, token_file)
    seen, after = look(client)
    if as_json:
        emit(Frame(seen.status, seen.decisions))
        return
    from commonpool.cli import screen, show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    if out.is_terminal:
        screen.live(out, client, seen, after)
    else:
        out.print(screen.frame(out, screen.View(seen)))
