"""Given the core's pictures, then the API says the same in its own words."""

from commonpool.api import views, wire
from commonpool.core.model import Pool
from commonpool.core.views import LoanView, PoolView, TenantView


def test_pools_that_the_policy_has() -> None:
    seen = [PoolView("main", 4000, 1000, 500, scaled=False), PoolView("gone", 0, 100, 0, scaled=False)]
    assert views.pools(seen, {"main": Pool("main", 4000)}) == (wire.PoolStatus("main", "elastic", 4000, 1000, 500),)


def test_tenants_with_their_waits() -> None:
    seen = TenantView("a", "main", 2000, 4000, 500, 300, 0, 100, 2, 5)
    (status,) = views.tenants([seen], lambda tenant: (7, None) if tenant == "a" else (None, None))
    assert status == wire.TenantStatus("a", "main", 2000, 4000, 500, 300, 0, 100, 5, 2, 7, None)


def test_loans_are_one_line_a_pair() -> None:
    seen = [
        LoanView("b", "a", "r1", 500, 30, due=False),
        LoanView("b", "a", "r2", 250, 20, due=True),
        LoanView("b", "a", "r2", 250, 40, due=False),
        LoanView("", "a", "r2", 100, 10, due=False),
    ]
    assert views.loans(seen) == (
        wire.LoanStatus("", "a", 100, 1, 10, due=False),
        wire.LoanStatus("b", "a", 1000, 2, 20, due=True),
    )
