"""Given loans now and in the past, when their page is opened, then both parties are named, and filters keep to them."""

from decimal import Decimal

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api.wire import status as wire
from commonpool.console import figures
from commonpool.console.loans import PARTIES_MAX, Sum, between, largest, matrix
from commonpool.observe.decisions import Decision
from tests.api.fakes import ADMIN, LOAN, NOW, FakeOperations
from tests.console.visitor import visiting, words

UNOWNED = wire.LoanStatus("", "research", 250, 1, NOW, due=False)
DUE = wire.LoanStatus("research", "support", 100, 0, NOW, due=True, jobs=2)


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    made.loans_now = (LOAN, UNOWNED, DUE)
    return made


def test_open_loans_are_kept_by_their_parties(product: FakeOperations) -> None:
    with visiting(product) as local:
        shown = words(local.get("/loans").text)
        assert "3 loans" in shown
        assert "wanted back" in shown
        of_support = words(local.get("/loans?lender=support").text)
        assert "1 loan" in of_support
        assert "1.5 GPU" in of_support
        unowned = words(local.get("/loans?lender=-&borrower=research").text)
        assert "0.25 GPU" in unowned
        assert "1.5 GPU" not in unowned


def test_the_matrix_has_the_largest_and_says_how_many_pairs_it_has_not() -> None:
    sums = [Sum(f"l{n:02}", "b", Decimal(n)) for n in range(1, PARTIES_MAX + 4)]
    made = matrix(sums)
    assert made.lenders[0] == f"l{PARTIES_MAX + 3:02}"
    assert (len(made.lenders), made.borrowers, made.rest) == (PARTIES_MAX, ["b"], 3)


def test_between_two_parties() -> None:
    sums = [Sum("a", "b", Decimal(1)), Sum("a", "c", Decimal(3)), Sum("", "b", Decimal(2))]
    assert [each.borrower for each in largest(between(sums, "a", None))] == ["c", "b"]
    assert [each.lender for each in largest(between(sums, None, "b"))] == ["", "a"]
    assert between(sums, "", "b") == [sums[2]]


def test_decisions_about_these_parties_alone(product: FakeOperations) -> None:
    add = product.fake_feed.decisions.add
    add(Decision(NOW, "loan", "research borrows of support.", ("support", "research")))
    add(Decision(NOW, "loan", "ops borrows of support.", ("support", "ops")))
    with visiting(product) as local:
        both = words(local.get("/loans?lender=support&borrower=research").text)
    assert "research borrows of support." in both
    assert "ops borrows of support." not in both


def test_a_month_that_is_none_is_refused(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert local.get("/loans?period=soon").status_code == 400
        assert local.get("/loans?period=2027-01").status_code == 200


def test_what_is_expected_back_is_never_in_the_past(product: FakeOperations) -> None:
    product.loans_now = tuple(
        msgspec.structs.replace(loan, return_ns=product.now + s * 10**9)
        for loan, s in zip(product.loans_now, (60, -60, 0), strict=True)
    )
    with visiting(product) as local:
        shown = words(local.get("/loans").text)
    assert shown.count("any moment") == 1
    assert shown.count("08:01:00") == 1  # NOW is 08:00 UTC


def test_small_gpu_times_are_in_seconds() -> None:
    shown = [figures.gpu_hours(Decimal(seconds)) for seconds in ("0", "0.001", "98.706", "360", "-98.706", "7200")]
    assert shown == ["0.0 GPU h", "<0.1 GPU s", "98.7 GPU s", "0.1 GPU h", "-98.7 GPU s", "2.0 GPU h"]


def test_a_tenant_sees_loans_that_it_is_a_party_of(product: FakeOperations) -> None:
    product.loans_now = (LOAN, wire.LoanStatus("third", "fourth", 900, 1, NOW, due=False))
    product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
    with visiting(product, authorization=ADMIN.decode()) as local:
        shown = words(local.get("/loans").text)
        assert "1.5 GPU" in shown
        assert "0.9 GPU" not in shown
        assert "third" not in local.get("/loans").text


def test_who_reads_use_and_no_state_sees_what_was_lent(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "finance")
    with visiting(product, authorization=ADMIN.decode()) as local:
        page = local.get("/loans")
    assert page.status_code == 200
    assert "Not shown: your role does not include it." in words(page.text)
    assert "1.5 GPU" not in words(page.text)
    assert "Nobody has lent to anybody in this period." in words(page.text)
