"""`commonpool release`: a part of a guarantee that is not used becomes everybody's, until that is undone."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from commonpool.api import text
from commonpool.api.wire import releases as wire
from commonpool.cli.client import connect, segment
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.config.quantities import QuantityError, parse_gpu
from commonpool.store.releases import Release


def release(
    tenant: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Whose guarantee. None: show what is under-used.")
    ] = None,
    *,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="GPU", help="How much. [default: what is offered]", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who read it later.", show_default=False)] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take back all that the tenant has released.")] = False,
    every: Annotated[bool, typer.Option("--list", help="Show all releases, and who made them.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Release a part of a guarantee that is not used, or show which are not; nothing that runs is touched."""
    if (gpus is not None or reason) and (tenant is None or undo or every):
        raise CommandError("--gpus and --reason go with a TENANT that releases something", ExitCode.USAGE)
    if (undo and tenant is None) or (every and (undo or tenant is not None)):
        raise CommandError("--undo goes with a TENANT, and --list with nothing else", ExitCode.USAGE)
    client = connect(control, token_file)
    if every:
        kept = client.get("/admin/v1/releases", wire.Releases)
        _show(kept, _releases(kept), as_json=as_json)
    elif tenant is None:
        found = client.get("/admin/v1/underuse", wire.Underused)
        _show(found, _underuse(found), as_json=as_json)
    elif undo:
        undone = client.post(f"/admin/v1/releases/{segment(tenant, 'TENANT')}/undo", None, wire.Releases)
        again = sum(each.milli_gpu for each in undone.releases)
        _answer(undone, f"tenant {tenant} has its whole guarantee again, {text.gpus(again)} gpu more", as_json=as_json)
    else:
        made = client.post("/admin/v1/releases", wire.NewRelease(tenant, _amount(gpus), reason), Release)
        said = (
            f"tenant {made.tenant} has released {text.gpus(made.milli_gpu)} gpu of its guarantee"
            f" (release {made.number}); `commonpool release {made.tenant} --undo` takes it back"
        )
        _answer(made, said, as_json=as_json)


def _amount(gpus: str | None) -> int | None:
    try:
        return None if gpus is None else parse_gpu(gpus)
    except QuantityError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None


def _answer(answer: Release | wire.Releases, said: str, *, as_json: bool) -> None:
    if as_json:
        emit(answer)
    else:
        typer.echo(said)


class _Table(NamedTuple):
    """What people see of an answer; `words` are the columns that stand to the left, `nothing` is said without rows."""

    titles: tuple[str, ...]
    words: frozenset[str]
    rows: Sequence[tuple[str, ...]]
    nothing: str
    total: tuple[str, ...] | None = None


def _show(answer: wire.Underused | wire.Releases, table: _Table, *, as_json: bool) -> None:
    if as_json:
        emit(answer)
    elif not table.rows:
        typer.echo(table.nothing)
    else:
        from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

        out = show.console()
        columns = [show.Column(title, right=title not in table.words) for title in table.titles]
        out.print(show.table(out, columns, table.rows, table.total))


def _underuse(found: wire.Underused) -> _Table:
    rows = [
        (
            each.tenant,
            each.pool,
            text.gpus(each.guaranteed_milli_gpu),
            f"{each.hours} h",
            text.gpus(each.peak_milli_gpu),
            text.gpus(each.mean_milli_gpu),
            text.gpus(each.lent_milli_gpu),
            text.gpus(each.offered_milli_gpu),
        )
        for each in found.tenants
    ]
    guaranteed = text.gpus(sum(each.guaranteed_milli_gpu for each in found.tenants))
    lent = text.gpus(sum(each.lent_milli_gpu for each in found.tenants))
    titles = ("guaranteed", "below half for", "peak wanted", "mean wanted", "lent now", "could be released")
    return _Table(
        ("tenant", "pool", *titles),
        frozenset({"tenant", "pool"}),
        rows,
        "no guarantee is under-used: each was wanted by half at least within the last three days",
        ("total", "", guaranteed, "", "", "", lent, text.gpus(found.offered_milli_gpu)),
    )


def _releases(found: wire.Releases) -> _Table:
    rows = [
        (
            str(each.number),
            each.tenant,
            text.gpus(each.milli_gpu),
            text.moment(each.released_ns),
            each.released_by,
            text.moment(each.undone_ns),
            each.undone_by or text.NONE,
            each.reason,
        )
        for each in found.releases
    ]
    return _Table(
        ("release", "tenant", "gpu", "released", "by", "undone", "by", "reason"),
        frozenset({"tenant", "released", "by", "undone", "reason"}),
        rows,
        "nothing has been released",
    )
