"""Given a product, when its first screen is opened, then it shows what the API says to the same reader, and no more."""

import asyncio
import html

import msgspec
import pytest

from commonpool.api.wire import status as wire
from commonpool.console import figures, overview, platform
from commonpool.core.burn import RULES, Burn, Promise, Rule
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.waits import Spread
from commonpool.observe.decisions import Decision
from tests.api.books import at
from tests.api.fakes import LOAN, TENANT, FakeOperations
from tests.console.visitor import visiting, words
from tests.security.matrix_world import FOREIGN, OWN, things, world

S = 10**9


@pytest.fixture
def product() -> FakeOperations:
    return FakeOperations()


def promise(
    tenant: str, name: str = "queue", p99: int | None = S, rate: float | None = 0.0, rule: Rule | None = None
) -> Promise:
    burns = (Burn(NS_PER_HOUR, 10, 0, rate),)
    return Promise(tenant, "interactive", name, 2 * S, Spread(10 if p99 else 0, p99, p99, p99, p99), burns, rule)  # type: ignore[arg-type]


def pair(tenant: str, **queue: object) -> tuple[Promise, Promise]:
    return promise(tenant, **queue), promise(tenant, "first_token", p99=queue.get("p99", S))  # type: ignore[arg-type]


def test_quota_with_loans_and_when_they_come_back(product: FakeOperations) -> None:
    product.loans_now = (msgspec.structs.replace(LOAN, return_ns=product.now + 60 * S),)
    with visiting(product) as local:
        local.cookies.set("commonpool-zone", "Asia/Shanghai")
        shown = words(local.get("/").text)
    for piece in (TENANT.name, "2 GPU", "0.5 GPU", "1.5 GPU", "16:01:00"):  # NOW is 08:00 UTC
        assert piece in shown


def test_what_is_not_known_is_not_zero(product: FakeOperations) -> None:
    with visiting(product) as local:
        shown = words(local.get("/").text)
    assert "no hour is closed yet" in shown
    assert "Nothing was refused in the last 24 hours." in shown
    assert "No requests in the last hour." in shown


def test_few_warnings_are_shown_as_text_and_all_are_counted(product: FakeOperations) -> None:
    product.warnings = tuple(f"<script>alert({number})</script>" for number in range(5))
    with visiting(product) as local:
        page = local.get("/").text
    assert page.count("&lt;script&gt;") == 3
    assert "<script>alert" not in page
    assert "All 5 warnings" in words(page)


def test_tenants_that_need_attention_come_first() -> None:
    def tenant(name: str, **more: int) -> wire.TenantStatus:
        return msgspec.structs.replace(TENANT, **{"name": name, "waiting": 0, "lent_milli_gpu": 0, **more})

    rows = [
        tenant("calm"),
        tenant("waits", waiting=5),
        tenant("due", due_milli_gpu=1),
        tenant("lends", lent_milli_gpu=9),
    ]
    status = wire.Status("1", 1, 0, 0, True, (), tuple(rows), ())
    assert [row.name for row in overview.quota(status).rows] == ["due", "waits", "lends", "calm"]


def test_promises_by_who_is_called_for_then_how_fast_they_burn() -> None:
    found = overview.promised(
        [
            *pair("kept"),
            *pair("slow", p99=9 * S),
            *pair("fast", rate=3.0),
            *pair("ticket", rate=1.5, rule=RULES[2]),
            *pair("page", rate=20.0, rule=RULES[0]),
            *pair("silent", p99=None),
        ]
    )
    assert [each.tenant for each in found] == ["page", "ticket", "fast", "slow", "kept"]
    assert [each.severity for each in found] == ["page", "ticket", "", "", ""]
    assert found[0].burn == 20.0


def test_a_promise_of_which_nothing_was_asked_has_no_rate() -> None:
    (found,) = overview.promised([promise("a", rate=None), promise("a", "first_token", rate=None)])
    assert found.burn is None


def test_of_those_who_wait_alike_the_smallest_tenant_comes_first() -> None:
    sizes = {"large": 9000, "small": 100, "worst": 5000}
    tenants = tuple(msgspec.structs.replace(TENANT, name=n, guaranteed_milli_gpu=g) for n, g in sizes.items())
    status = wire.Status("1", 1, 0, 0, True, (), tenants, ())
    found = overview.promised([*pair("large"), *pair("small"), *pair("worst", p99=3 * S)])
    assert [each.tenant for each in platform.suffering(found, status)] == ["worst", "small", "large"]


def test_what_takes_long_is_said_and_the_rest_is_there(product: FakeOperations) -> None:
    slow = product.fake_bills.bill

    async def never(*given: object, **more: object) -> object:
        if given[2] == ("tenant",):
            await asyncio.sleep(3600)
        return await slow(*given, **more)  # type: ignore[arg-type]

    product.fake_bills.bill = never  # type: ignore[assignment,method-assign]
    with visiting(product, within_s=0.05) as local:
        answer = local.get("/")
    assert answer.status_code == 200
    assert "This is being worked out; it appears by itself." in words(answer.text)
    assert "Top models" in words(answer.text)


def test_whom_bills_are_not_for_sees_what_work_cost() -> None:
    product = world()
    product.now = at("2027-01-01 12:00")
    own, foreign = things(OWN), things(FOREIGN)
    for role in ("developer", "viewer in a tenant"):
        with visiting(product, "192.0.2.7", authorization=f"Bearer {role}") as remote:
            page = remote.get("/").text
            shown = words(page)
            assert "What work cost" in shown
            assert "Cost in four layers" not in shown
            assert "Not shown: your role does not include it." not in shown
            cost = figures.money(remote.get("/admin/v1/usage").json()["total"]["cost_micro"], "EUR")
            assert cost != figures.money(0, "EUR")
            assert cost in section(page, "spent")
            assert cost in section(page, "apps")
            assert cost in section(page, "models")
            assert own.app in section(page, "apps")
            assert foreign.app not in page
            assert cost in section(remote.get(f"/tenants/{OWN}?range=7d").text, "cost")
            assert 'id="quotas"' not in remote.get("/advice").text
    with visiting(product, "192.0.2.7", authorization="Bearer tenant-admin") as remote:
        assert "Cost in four layers" in words(remote.get("/").text)


def test_a_change_of_many_tenants_hides_no_other_decision() -> None:
    product = FakeOperations()
    add = product.fake_feed.decisions.add
    add(Decision(product.now - S, "loan", "research borrows", ("research",)))
    for n in range(200):
        add(Decision(product.now, "quota", f"tenant t{n} is new", ("support",)))
    with visiting(product) as local:
        shown = words(section(local.get("/").text, "decisions"))
    assert "research borrows" in shown
    assert "and 198 more at once" in shown
    assert sum(each.endswith("is new") for each in shown) == 2


def test_figures_lead_to_their_records() -> None:
    with visiting(world()) as local:
        page = html.unescape(local.get("/").text)
        tenant = section(page, "quota").partition("<tbody>")[2]
        assert tenant.count(f'href="/tenants/{OWN}#') == 4  # guaranteed, used, waiting, running
        pools = html.unescape(section(local.get("/platform").text, "pools"))
    assert pools.count('href="/devices?pool=main"') == 2
    assert 'href="/loans?lender=-"' in pools


def section(page: str, name: str) -> str:
    return page.partition(f'id="{name}"')[2].partition("</section>")[0]
