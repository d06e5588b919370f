"""`commonpool release`: a part of a guarantee that is not used becomes everybody's, until that is undone."""

from typing import Annotated
from urllib.parse import quote

import typer

from commonpool.api import text, wire
from commonpool.cli.client import Client, connect
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
        _show_releases(client, as_json=as_json)
    elif tenant is None:
        _show_underuse(client, as_json=as_json)
    elif undo:
        undone = client.post(f"/admin/v1/releases/{quote(tenant, safe='')}/undo", None, wire.Releases)
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


def _show_underuse(client: Client, *, as_json: bool) -> None:
    found = client.get("/admin/v1/underuse", wire.Underused)
    if as_json:
        emit(found)
        return
    if not found.tenants:
        typer.echo("no guarantee is under-used: each was wanted by half at least within the last three days")
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    titles = ("guaranteed", "below half for", "peak wanted", "mean wanted", "lent now", "could be released")
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
    total = (
        "total",
        "",
        text.gpus(sum(each.guaranteed_milli_gpu for each in found.tenants)),
        "",
        "",
        "",
        text.gpus(sum(each.lent_milli_gpu for each in found.tenants)),
        text.gpus(found.offered_milli_gpu),
    )
    names = [show.Column(title, right=False) for title in ("tenant", "pool")]
    out.print(show.table(out, [*names, *map(show.Column, titles)], rows, total))


def _show_releases(client: Client, *, as_json: bool) -> None:
    found = client.get("/admin/v1/releases", wire.Releases)
    if as_json:
        emit(found)
        return
    if not found.releases:
        typer.echo("nothing has been released")
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    columns = [
        show.Column("release"),
        show.Column("tenant", right=False),
        show.Column("gpu"),
        *(show.Column(title, right=False) for title in ("released", "by", "undone", "by", "reason")),
    ]
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
    out.print(show.table(out, columns, rows))
