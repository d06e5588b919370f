"""What holds for all tests."""

from hypothesis import HealthCheck, settings

from tests.leaks import _no_leak_in_files, pytest_configure, pytest_runtest_makereport

__all__ = ["_no_leak_in_files", "pytest_configure", "pytest_runtest_makereport"]

# How long an example takes, or takes to make, says more of the machine than of the code.
settings.register_profile("commonpool", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("commonpool")
