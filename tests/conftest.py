"""What holds for all tests."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.leaks import _no_leak_in_files, pytest_configure, pytest_runtest_makereport
from tests.security.searching import TIMES

__all__ = ["_no_leak_in_files", "pytest_configure", "pytest_runtest_makereport"]

# How long an example takes, or takes to make, says more of the machine than of the code. They are the same in each run,
# so that none fails by chance, unless others are wanted (COMMONPOOL_FUZZ).
settings.register_profile(
    "commonpool",
    deadline=None,
    derandomize=TIMES == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("commonpool")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A test that has the product set up its logs here does not choose where the next test's lines go."""
    root = logging.getLogger()
    before = root.handlers, root.level
    configured = structlog.is_configured()
    yield
    if not configured and structlog.is_configured():
        structlog.reset_defaults()
        root.handlers, level = before
        root.setLevel(level)
