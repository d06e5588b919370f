"""`commonpool tenants`: which tenants there are, whose groups they are in, and who pays for their apps."""

from commonpool.api import text
from commonpool.api.terms import Tenants
from commonpool.cli.client import connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit


def tenants(*, control: Control = CONTROL_URL, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show the tenants that you may know of, with their groups, apps and cost centres."""
    found = connect(control, token_file).get("/admin/v1/tenants", Tenants)
    if as_json:
        emit(found)
        return
    from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

    titles = ("tenant", "group", "app", "cost centre")
    rows = [
        (each.name, each.group or text.NONE, app.name, app.cost_center or text.NONE)
        for each in found.tenants
        for app in each.apps
    ]
    out = show.console()
    out.print(show.table(out, [show.Column(title, right=False) for title in titles], rows))
