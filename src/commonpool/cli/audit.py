"""`commonpool audit`: who was allowed or denied what, and whether the log of it is as it was written."""

from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import audit as wire
from commonpool.cli.client import Client, Query, connect
from commonpool.cli.exits import CommandError
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit
from commonpool.cli.times import Until, between
from commonpool.store.audit import Fault

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PATH = "/admin/v1/audit"

audit = typer.Typer(name="audit", help="Read the audit log, and verify it.", no_args_is_help=True)


@audit.command("list")
def list_entries(
    *,
    caller: Annotated[
        list[str] | None, typer.Option("--caller", help="Only this one, like local or key:ID; may be repeated.")
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option("--action", help="Only this permission, like apply_config; may be repeated.")
    ] = None,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Only about this one; may be repeated.")] = None,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", help="Only allowed, denied or lost; may be repeated.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From when: a duration ago (24h, 30d) or a UTC time.")
    ] = "24h",
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most, the newest.")] = 100,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show who was allowed or denied what, the newest first."""
    query = between(since, until)
    wanted = {"caller": caller, "action": action, "tenant": tenant, "outcome": outcome}
    query |= {name: values for name, values in wanted.items() if values}
    found = _entries(connect(control, token_file), query, limit)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    out = show.console()
    out.print(picture(out, found) if found.entries else "no entry of that time is like that")


@audit.command()
def verify(
    *,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="NUMBER:HASH", help="A head that was kept elsewhere; may be repeated."),
    ] = None,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Work out every hash from the first entry on. Prints the head to keep; ends with 1 where an entry is wrong."""
    verdict = _verdict(connect(control, token_file), head or [])
    if as_json:
        emit(verdict)
    else:
        for fault in verdict.faults:
            typer.echo(fault.sentence)
        if verdict.whole:
            typer.echo("every entry is as it was written")
        typer.echo(f"head {verdict.head}")
    if not verdict.whole:
        raise CommandError(
            f"the audit log is not as it was written: {len(verdict.faults)} fault(s), the first at entry"
            f" {verdict.faults[0].number}; somebody changed it in the store"
        )


def _verdict(client: Client, heads: list[str]) -> wire.AuditVerdict:
    """On the whole log, step by step."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    found: tuple[Fault, ...] = ()
    after, more = "", True
    with show.progress("working out the hashes"):
        while more:
            step = client.get(f"{PATH}/verify", wire.AuditVerdict, {"head": heads, "after": after})
            found += step.faults
            after, more = step.head, step.more
    return wire.AuditVerdict(not found, after, found, more=False)


def _entries(client: Client, query: Query, limit: int) -> wire.AuditEntries:
    found: list[wire.AuditEntry] = []
    after: str | None = ""
    while after is not None and len(found) < limit:
        page = client.get(PATH, wire.AuditEntries, {**query, "after": after})
        found += page.entries
        after = page.after
    if len(found) > limit:
        found = found[:limit]
        after = str(found[-1].number)
    return wire.AuditEntries(tuple(found), after)


def picture(out: "Console", found: wire.AuditEntries) -> "RenderableType":
    """A row an entry."""
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("number", "at", "caller", "action", "tenant", "outcome", "times", "call", "from")
    columns = [show.Column(title, right=title in {"number", "times"}) for title in titles]
    rows = [
        (
            str(entry.number),
            text.moment(entry.at_ns),
            entry.caller or text.NONE,
            entry.action or text.NONE,
            entry.tenant or text.NONE,
            entry.outcome,
            f"{entry.count:,}",
            f"{entry.method} {entry.path}",
            entry.peer or text.NONE,
        )
        for entry in found.entries
    ]
    return show.table(out, columns, rows)
