"""What every test of a command starts from."""

import pytest


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a pipe of no width, whatever runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)
