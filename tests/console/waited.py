"""Rows of waits to test pages with."""

from commonpool.api.wire.waits import WaitRow
from commonpool.core.burn import Kept
from commonpool.core.waits import Spread

NONE = Spread(0, None, None, None, None)


def row(
    group: tuple[str, ...], start_ns: int | None = None, wait: Spread = NONE, refused: dict[str, int] | None = None
) -> WaitRow:
    return WaitRow(
        group=group,
        start_ns=start_ns,
        completed=wait.count,
        failed=0,
        cancelled=0,
        abandoned=0,
        refused=refused or {},
        wait=wait,
        first_token=NONE,
        unserved=NONE,
        queue=Kept(),
        first_token_promise=Kept(),
    )
