"""Given alerts, when their page is opened, then what is wrong is said with what to do, and is silenced by who may."""

import asyncio

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.access.scope import EVERYTHING
from commonpool.control.alerting.rules import Away
from commonpool.core.english import english
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.underuse import Underuse
from tests.api.fakes import ADMIN, CONFIG, NOW, FakeOperations, sources
from tests.console.visitor import OWN_PAGE, visiting, words

CHANNEL = 'alerts: {channels: {room: {kind: webhook, url: "http://127.0.0.1:9/hook"}}}\n'
UNDERUSE = Underuse("support", "main", 2000, 80, 100, 20, 500, 500)


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    made.configure(sources(CONFIG + CHANNEL))
    made.underused = (UNDERUSE,)
    asyncio.run(looked(made))
    return made


async def looked(product: FakeOperations, alerts: int = 1) -> None:
    """What is wrong has been seen: so many alerts."""
    looking = asyncio.ensure_future(product.fake_alerts.run())
    while len(product.fake_alerts.listing(EVERYTHING).alerts) < alerts:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


def alert(product: FakeOperations) -> str:
    return product.fake_alerts.listing(EVERYTHING).alerts[0].id


def test_what_is_wrong_with_what_to_do(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/alerts").text
    shown = words(page)
    assert "Guarantee under-used" in shown
    assert english(UNDERUSE.said) in shown
    assert 'href="/tenants/support"' in page
    assert "room" in shown
    assert "nothing to tell since the start" in shown


def test_an_alert_is_silenced_for_a_while(product: FakeOperations) -> None:
    path = f"/alerts/{alert(product)}/silence"
    with visiting(product) as local:
        assert local.post(path, data={"for": "8h"}, headers={"origin": "http://elsewhere.example"}).status_code == 403
        assert local.post(path, data={"for": "ever"}, headers=OWN_PAGE).status_code == 400
        assert product.fake_alerts.listing(EVERYTHING).alerts[0].silenced_until_ns is None
        page = local.post(path, data={"for": "8h"}, headers=OWN_PAGE).text
    assert product.fake_alerts.listing(EVERYTHING).alerts[0].silenced_until_ns == NOW + 8 * NS_PER_HOUR
    assert "Its channels are not told of it for that long." in words(page)
    assert f'action="{path}"' not in page


def test_a_silence_is_ended_by_who_made_it_and_by_nobody_else(product: FakeOperations) -> None:
    path = f"/alerts/{alert(product)}"
    with visiting(product) as local:
        local.post(f"{path}/silence", data={"for": "8h"}, headers=OWN_PAGE)
        assert f'action="{path}/unsilence"' in local.get("/alerts").text
    product.callers[ADMIN] = by_admin_key("k", "tenant-admin", "support")
    with visiting(product, authorization=ADMIN.decode()) as support:
        page = support.get("/alerts").text
        assert any(each.startswith("silent until") and each.endswith(", for everybody") for each in words(page))
        assert f'action="{path}/' not in page
        assert support.post(f"{path}/unsilence", headers=OWN_PAGE).status_code == 404
    with visiting(product) as local:
        page = local.post(f"{path}/unsilence", headers=OWN_PAGE).text
    assert "Its channels are told of it again." in words(page)
    assert f'action="{path}/silence"' in page
    assert product.fake_alerts.listing(EVERYTHING).alerts[0].silenced_until_ns is None


def test_a_channel_is_tried_and_its_failure_said(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.post("/alerts", data={"channel": "room"}, headers=OWN_PAGE).text
        assert "The channel has taken a message." in words(page)
        assert len(product.courier.letters) == 1
        product.courier.refuses = "nobody listens there"
        failed = local.post("/alerts", data={"channel": "room"}, headers=OWN_PAGE)
        assert failed.status_code == 503
        assert any("nobody listens there" in piece for piece in words(failed.text))


def test_nothing_wrong_is_said(product: FakeOperations) -> None:
    del product
    with visiting(FakeOperations()) as local:
        shown = words(local.get("/alerts").text)
    assert "Nothing is wrong." in shown
    assert any("no channel is configured" in piece for piece in shown)


def test_what_is_wrong_in_chinese(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/alerts", headers={"accept-language": "zh"}).text
    assert "租户 support 保障 2 GPU，而 3 天来最多需要 0.1 GPU；" in page  # noqa: RUF001 - Chinese
    assert "<code>commonpool release support</code> 可让所有人使用 0.5 GPU。" in page
    assert "释放可释放的部分" in page
    assert english(UNDERUSE.said) not in page


def test_what_somebody_else_has_said_is_marked_as_english(product: FakeOperations) -> None:
    product.away = Away(journal="The disk is full.")
    asyncio.run(looked(product, 2))
    with visiting(product) as local:
        page = local.get("/alerts", headers={"accept-language": "zh"}).text
    assert "日志不可写，因此不接受任何请求。" in page  # noqa: RUF001 - Chinese
    assert '<span lang="en">The disk is full.</span>' in page


def test_who_looks_on_is_not_offered_to_silence_and_others_see_nothing(product: FakeOperations) -> None:
    path = f"/alerts/{alert(product)}/silence"
    with visiting(product, authorization=ADMIN.decode()) as local:
        product.callers[ADMIN] = by_admin_key("k", "viewer", "support")
        page = local.get("/alerts").text
        assert english(UNDERUSE.said) in words(page)
        assert f'action="{path}"' not in page
        assert local.post(path, data={"for": "1h"}, headers=OWN_PAGE).status_code == 403
        product.callers[ADMIN] = by_admin_key("k", "viewer", "research")
        assert english(UNDERUSE.said) not in words(local.get("/alerts").text)
