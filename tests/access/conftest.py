"""An issuer that runs, and people over a store in memory."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from commonpool.config.structs import Oidc
from tests.access.house import House
from tests.access.issuer import CLIENT, TestIssuer


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    running = TestIssuer()
    yield running
    running.stop()


@pytest.fixture
def oidc(issuer: TestIssuer) -> Oidc:
    return Oidc(issuer.url, CLIENT, "env:OIDC_SECRET", audience="pool-api")


@pytest.fixture
def house(oidc: Oidc) -> Iterator[House]:
    with closing(House(oidc)) as made:
        yield made


@pytest.fixture
def alone() -> Iterator[House]:
    """Without an issuer."""
    with closing(House(None)) as made:
        yield made
