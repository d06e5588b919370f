"""Given times as people write them, then which these are."""

import pytest

from commonpool.cli.exits import CommandError
from commonpool.cli.times import instant
from tests.store.records import T0


def test_instants() -> None:
    now = T0 + 5 * 3600 * 10**9
    assert instant("5h", now, "--since") == T0
    assert instant("3650d", 0, "--since") == 0
    assert instant("2024-01-01", now, "--since") == T0
    assert instant("2024-01-01T01:00+01:00", now, "--since") == T0
    assert instant("1969-01-01", now, "--since") == 0
    with pytest.raises(CommandError, match="--since 'x' is neither a duration"):
        instant("x", now, "--since")
