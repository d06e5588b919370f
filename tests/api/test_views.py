"""Given the core's pictures, then the API says the same in its own words."""

from commonpool.api import views
from commonpool.api.wire.requests import LiveRequest
from commonpool.api.wire.status import BudgetStatus, LoanStatus, PoolStatus, TenantStatus
from commonpool.core.model import Cause, Pool, Request, Wait
from commonpool.core.views import BudgetView, LoanView, PoolView, TenantView
from tests.store.records import usage_record


def test_pools_that_the_policy_has() -> None:
    seen = [PoolView("main", 4000, 1000, 500, scaled=True), PoolView("gone", 0, 100, 0, scaled=False)]
    (status,) = views.pools(seen, {"main": Pool("main", 4000)})
    assert status == PoolStatus("main", "elastic", 4000, 1000, 500, scaled=True)


def test_tenants_with_their_waits() -> None:
    seen = TenantView("a", "main", 2000, 4000, 500, 300, 0, 100, 2, 5, 70)
    (status,) = views.tenants([seen], lambda tenant: (7, None) if tenant == "a" else (None, None), {}, "EUR")
    assert status == TenantStatus("a", "main", 2000, 4000, 500, 300, 0, 100, 5, 2, 7, None, 70)


def test_a_tenant_with_its_budget() -> None:
    seen = TenantView("a", "main", 2000, 4000, 500, 300, 0, 100, 2, 5, 70)
    budgets = {"a": BudgetView(50, 40, 3, soft=True, until_ns=9)}
    (status,) = views.tenants([seen], lambda _: (None, None), budgets, "EUR")
    assert status.budget == BudgetStatus(50, 40, 3, soft=True, until_ns=9, currency="EUR")


def test_loans_are_one_line_a_pair() -> None:
    seen = [
        LoanView("b", "a", "r1", 500, 30, due=False),
        LoanView("b", "a", "r2", 250, 20, due=True),
        LoanView("b", "a", "r2", 250, 40, due=False),
        LoanView("", "a", "r2", 100, 10, due=False),
        LoanView("", "a", "j3", 100, 10, due=False, job=True),
    ]
    assert views.loans(seen) == (
        LoanStatus("", "a", 200, 1, 10, due=False, jobs=1),
        LoanStatus("b", "a", 1000, 2, 20, due=True),
    )


def test_a_loan_has_lasted_since_the_pair_began_and_what_was_expected_before_now_is_not_known() -> None:
    one = LoanView("b", "a", "r1", 500, 30, due=False, return_ns=90)
    other = LoanView("", "a", "r2", 250, 20, due=False, return_ns=70)
    began = {("b", "a"): 5, ("", "a"): 25}
    unowned, lent = views.loans([one, other], 80, lambda *pair: began[pair])
    assert (lent.start_ns_min, lent.return_ns) == (5, 90)
    assert (unowned.start_ns_min, unowned.return_ns) == (20, None)


def test_a_pair_of_which_all_is_known_is_back_with_its_last_loan() -> None:
    one = LoanView("b", "a", "r1", 500, 30, due=False, return_ns=90)
    other = LoanView("b", "a", "r2", 250, 20, due=False, return_ns=70)
    unknown = LoanView("b", "a", "r3", 250, 20, due=False)
    assert views.loans([one, other])[0].return_ns == 90
    assert views.loans([one, unknown])[0].return_ns is None


def test_what_a_live_request_waits_for_so_far() -> None:
    request = Request("r1", "a", "chat", "m", "interactive", "chat", 1)
    waits = (Wait(Cause.TURN, "", 1), Wait(Cause.SLOTS, "m", 4), Wait(Cause.TURN, "", 2))
    live = views.live(request, waits)
    assert (live.state, live.wait_ns, [part.ns for part in live.waits]) == ("waiting", 7, [4, 3])
    assert views.live(request, None) == LiveRequest("a", "chat", "m", "interactive", "running", 0, (), "running")


def test_a_record_keeps_all_its_fields() -> None:
    record = usage_record("r1", waits=(Wait(Cause.TURN, "", 5),))
    attempt = views.attempt(record)
    for name in record.__struct_fields__:
        if name != "waits":
            assert getattr(attempt, name) == getattr(record, name)
    assert (attempt.advice, len(attempt.waits)) == ("", 1)
