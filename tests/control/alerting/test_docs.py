"""The table of conditions in docs/alerts.md is the one that the product goes by."""

from pathlib import Path

from commonpool.config.quantities import format_duration
from commonpool.core.alerts import CONDITIONS

DOCUMENT = Path(__file__).parents[3] / "docs" / "alerts.md"


def test_the_document_has_every_condition_as_it_is() -> None:
    rows = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{each.name}` | {each.severity.value} | {format_duration(each.for_ns)} | {format_duration(each.keep_ns)} |"
        f" {each.meaning} | {each.advice} |"
        for each in CONDITIONS.values()
    ]
