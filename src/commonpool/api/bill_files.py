"""A bill as a file for other programs, in each of the formats that there are."""

from typing import Final

import msgspec

from commonpool.api import bill_formats, focus
from commonpool.api.wire import bill as wire

MEDIA: Final = {"csv": "text/csv", "json": "application/json", "html": "text/html", "focus": "text/csv"}
"""The formats and their media types; docs/bill.md says what each of them is."""


def written(table: wire.BillTable, form: str) -> str:
    """The bill in one of MEDIA's formats; for `focus` it is split by `focus.BY`."""
    match form:
        case "csv":
            return bill_formats.csv_text(table)
        case "html":
            return bill_formats.html_text(table)
        case "focus":
            return focus.csv_text(table)
        case _:
            return json_text(table)


def json_text(value: msgspec.Struct) -> str:
    """A struct as JSON that people can read, too."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
