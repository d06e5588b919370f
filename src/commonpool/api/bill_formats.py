"""A bill for other eyes than a terminal's: CSV with full precision, and one HTML page that prints well."""

import csv
import io
from collections.abc import Iterable
from decimal import Decimal
from importlib import resources

import jinja2

from commonpool.api import text
from commonpool.api.wire import bill as wire
from commonpool.core.billing import EARNED, LAYERS
from commonpool.core.ledger import Kind

GPU_KINDS = (*(kind.value for kind in Kind if kind is not Kind.FEE), EARNED)
NAMES = {
    Kind.USED.value: "used within the guarantee",
    Kind.IDLE.value: "guaranteed and idle",
    Kind.LENT.value: "guaranteed and lent",
    Kind.UNCHARGED.value: "work that is not charged",
    Kind.LOADING.value: "replicas starting",
    Kind.DRAINING.value: "replicas ending",
    Kind.DOWN.value: "while the product was down",
    Kind.BORROWED.value: "borrowed",
    EARNED: "earned by lending",
}
_HOURS = {"gpu_seconds": "GPU hours", "core_seconds": "core hours"}
_FORMULA = ("=", "+", "-", "@")


def name(charge: wire.Charge) -> str:
    """What a charge is for, in words."""
    return NAMES.get(charge.kind, charge.name)


def measured(charge: wire.Charge) -> tuple[str, str]:
    """A charge's quantity and its unit, as people read them."""
    if charge.quantity is None:
        return "", ""
    if charge.unit in _HOURS:
        return text.gpu_hours([charge.quantity])[0], _HOURS[charge.unit]
    return f"{charge.quantity:,}", charge.unit.replace("mib_seconds", "MiB seconds")


def decimal(micro: int) -> str:
    """Money for programs: `-1234.567890`."""
    return text.money(micro).replace(",", "")


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_text(table: wire.BillTable) -> str:
    """A row a line and none for the total: every column adds up to it. GPU time is in seconds, exactly."""
    others = sorted({(c.kind, c.name) for line in table.lines for c in line.charges if c.kind not in GPU_KINDS})
    times = ("guaranteed", "used", "borrowed", "lent")
    counts = ("requests", "completed", "attempts", "tokens_in", "tokens_cached", "tokens_out")
    columns = ["period", *table.by, *counts, *(f"{time}_gpu_seconds" for time in times), "currency"]
    columns += [
        *GPU_KINDS,
        *(f"{kind} {what}" for kind, what in others),
        *(f"{layer}_cost" for layer in LAYERS),
        "total",
    ]

    def row(line: wire.BillLine) -> list[str]:
        cells = [table.period, *map(plain, line.group), *(str(getattr(line, count)) for count in counts)]
        cells += [*(format(getattr(line, time).gpu_seconds, "f") for time in times), table.currency]
        costs = {(c.kind, "" if c.kind in GPU_KINDS else c.name): c.cost_micro for c in line.charges}
        cells += [decimal(costs.get(key, 0)) for key in (*((kind, "") for kind in GPU_KINDS), *others)]
        return [*cells, *(decimal(line.layers.get(layer, 0)) for layer in LAYERS), decimal(line.total_micro)]

    return rows([columns, *map(row, table.lines or (table.total,))])


def rows(lines: Iterable[Iterable[str]]) -> str:
    """Lines as CSV (RFC 4180)."""
    file = io.StringIO()
    csv.writer(file).writerows(lines)
    return file.getvalue()


def plain(cell: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


# -- HTML --------------------------------------------------------------------------------------------------------------


def html_text(table: wire.BillTable) -> str:
    """One page with everything in it: nothing is loaded from anywhere."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    page = resources.files("commonpool.api") / "pages" / "bill.html"
    return environment.from_string(page.read_text("utf-8")).render(
        bill=table,
        until=text.local(table.until_ns, table.time_zone),
        ends=text.local(table.end_ns, table.time_zone),
        money=text.money,
        hours=lambda seconds: text.gpu_hours([seconds])[0],
        columns=_columns(table),
        measured=measured,
        name=name,
    )


def _columns(table: wire.BillTable) -> list[list[str]]:
    """The GPU hours of each line, such that every column adds up as shown; those of the total last."""
    found = []
    for time in ("guaranteed", "used", "borrowed", "lent"):
        column: list[Decimal] = [getattr(line, time).gpu_seconds for line in table.lines]
        found.append([*text.gpu_hours(column), *text.gpu_hours([getattr(table.total, time).gpu_seconds])])
    return [list(row) for row in zip(*found, strict=True)]
