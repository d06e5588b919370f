"""A product and a local caller of its API."""

from collections.abc import Iterator

import pytest

from commonpool.api import routes
from tests.api.caller import TestClient
from tests.api.fakes import FakeOperations


@pytest.fixture
def product() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
def local(product: FakeOperations) -> Iterator[TestClient]:
    """A caller on the same machine, without a key."""
    application = routes.application(product)
    with TestClient(application, base_url="http://127.0.0.1:8081", client=("127.0.0.1", 50000)) as client:
        yield client
