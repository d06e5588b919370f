"""Each claim of docs/isolation.md names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)?(?:::([\w.]+))?`")


def test_every_test_that_a_claim_names_exists() -> None:
    rows = [line for line in (ROOT / "docs/isolation.md").read_text().splitlines() if line.startswith("| ")]
    claims = [row.split(" | ") for row in rows if not row.startswith("| claim |")]
    assert len(claims) > 50
    before = ""
    for _claim, *_how, shown in claims:
        named = [found for found in NAMED.findall(shown) if any(found)]
        assert named or shown.startswith("the same"), shown
        for file, test in named:
            before = file or before
            text = (ROOT / before).read_text()
            for name in test.split("."):
                assert not name or re.search(rf"\b{name}\b", text), f"{before}::{test}"
