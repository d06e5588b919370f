"""One cluster of three nodes for all tests that need one. They run last, being the slowest."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.town import Town


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is seen of the cluster is looked at before what becomes of it, in whichever order they are named."""
    items.sort(key=lambda item: item.path.name if "town" in getattr(item, "fixturenames", ()) else "")


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Town]":
    pytest.importorskip("ray")
    from tests.cluster.town import Town  # noqa: PLC0415 - it imports Ray
    from tests.observe.collector import collector  # noqa: PLC0415 - it imports OpenTelemetry's messages

    with collector() as watcher:
        town = Town(tmp_path_factory.mktemp("town"), watcher)
        try:
            town.start()
            yield town
        finally:
            town.stop()
