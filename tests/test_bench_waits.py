"""A tiny month of waits is filled and asked as a whole one is, and the page says what was found."""

from pathlib import Path

from benchmarks.bench_waits import QUICK, measure, page

from commonpool.core.model import NS_PER_HOUR
from commonpool.core.waits import DAY_NS, WINDOW_NS


def test_a_tiny_month_is_counted_made_and_asked(tmp_path: Path) -> None:
    found = measure(QUICK, tmp_path)  # it ends where a record is not counted
    assert found.rows == {WINDOW_NS: 2 * 144 * 9, NS_PER_HOUR: 2 * 24 * 9, DAY_NS: 2 * 9}
    assert all(found.bytes_of[span] > found.sketch_bytes[span] > 0 for span in found.rows)
    text = page(QUICK, found)
    assert all(f"| {name} |" in text for name in (*found.counted, *found.answers))
