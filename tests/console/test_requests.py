"""Given requests that have ended, when their pages are opened, then each is found, told in order, and charged."""

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api.looking import LOOKED_MAX
from commonpool.api.wire import requests as wire
from commonpool.console import requests
from commonpool.console.requests import Bar, Piece
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Outcome
from tests.api.books import at, billed, keep, work
from tests.api.fakes import FakeOperations
from tests.console.visitor import visiting, words
from tests.store.records import usage_record

ENDED = at("2026-12-31 22:30")


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    mine = msgspec.structs.replace(work("mine", ENDED, NS_PER_HOUR // 2), first_token_ns=600 * NS_PER_S)
    keep(product, "2026-12-31 20:00", "2027-01-02 00:00", [mine, work("theirs", ENDED, NS_PER_HOUR, tenant="research")])
    product.store.add_usage(
        [
            usage_record(
                "no-room",
                tenant="support",
                outcome=Outcome.REFUSED,
                reason="queue_full",
                model="echo",
                milli_gpu=0,
                arrived_ns=ENDED + NS_PER_HOUR,
            )
        ]
    )
    product.callers[b"Bearer of-support"] = by_admin_key("k6", "tenant-admin", "support")
    return product


def listed(page: str) -> list[str]:
    return [word for word in words(page) if word in {"mine", "theirs", "no-room"}]


def test_the_newest_come_first_and_filters_keep_what_they_name(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert listed(local.get("/requests?span=7d").text) == ["no-room", "mine", "theirs"]
        assert listed(local.get("/requests?span=7d&outcome=refused").text) == ["no-room"]
        assert listed(local.get("/requests?span=7d&reason=queue_full&tenant=support").text) == ["no-room"]
        assert listed(local.get("/requests?span=7d&tenant=research").text) == ["theirs"]
        assert listed(local.get("/requests?span=7d&model=none").text) == []
        assert "queue full" in words(local.get("/requests?span=7d").text)


def test_a_tenants_people_find_their_own(product: FakeOperations) -> None:
    with visiting(product, "192.0.2.7", authorization="Bearer of-support") as remote:
        assert listed(remote.get("/requests?span=7d").text) == ["no-room", "mine"]
        assert listed(remote.get("/requests?span=7d&tenant=research").text) == []
        assert remote.get("/requests/theirs").status_code == 404
        assert "support" in remote.get("/requests/mine").text


def test_a_full_page_leads_to_the_next_one(product: FakeOperations) -> None:
    more = [usage_record(f"r{number:03d}", tenant="support", arrived_ns=ENDED + number) for number in range(80)]
    product.store.add_usage(more)
    ids = {record.request_id for record in more}
    with visiting(product) as local:
        first = local.get("/requests?span=7d&app=chat").text
        assert len(set(words(first)) & ids) == 49  # and the one that there was no room for
        addresses = [part.split('"')[0] for part in first.split('href="')[1:]]
        (address,) = [each for each in addresses if "after=" in each]
        second = local.get(address.replace("&amp;", "&")).text
    assert set(words(first)) & ids | set(words(second)) & ids == ids
    assert not set(words(first)) & set(words(second)) & ids
    assert 'rel="next"' not in second


def test_a_rare_filter_looks_bit_by_bit_and_says_so(product: FakeOperations) -> None:
    others = (
        usage_record(f"r{number}", tenant="research", arrived_ns=ENDED + number + 1) for number in range(LOOKED_MAX)
    )
    product.store.add_usage(others)
    with visiting(product) as local:
        first = local.get("/requests?span=7d&tenant=support&reason=").text
        assert listed(first) == ["no-room"]
        assert any(word.startswith("Looked through back to") for word in words(first))
        (address,) = [part.split('"')[0] for part in first.split('href="')[1:] if "after=" in part.split('"')[0]]
        second = local.get(address.replace("&amp;", "&")).text
    assert listed(second) == ["mine"]
    assert 'rel="next"' not in second


def test_an_id_leads_to_its_request(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert local.get("/requests?id=+a/b+", follow_redirects=False).headers["location"] == "/requests/a%2Fb"
        assert local.get("/requests/unknown").status_code == 404


def test_the_life_of_a_request_and_what_it_cost(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/requests/mine").text
    shown = words(page)
    assert [word for word in shown if word in {"Arrived", "Dispatched", "First token", "Ended"}][-4:] == [
        "Arrived",
        "Dispatched",
        "First token",
        "Ended",
    ]
    assert "used within the guarantee" in shown
    assert "tenant:support → pool:main" in shown
    assert 'aria-label="Until the first token 10.0 min, Answering 20.0 min"' in page
    assert "data-live" not in page.split("<main", 1)[1].split("</main>")[0]  # it has ended: nothing will change


def step(what: str, at_ns: int, attempt: int = 1) -> wire.Step:
    return wire.Step(at_ns, what, attempt, "", 0)  # type: ignore[arg-type] # words of the API


def timeline(state: str, *steps: wire.Step, now_ns: int = 100) -> wire.RequestTimeline:
    return wire.RequestTimeline("r", "a", "b", "m", "t", state, now_ns, 0, steps, None, 0, "EUR")


def test_bars_of_one_that_ended() -> None:
    story = timeline(
        "completed",
        step("arrived", 0),
        step("queued", 0),
        step("dispatched", 10),
        step("first_token", 15),
        step("ended", 40),
    )
    drawn = requests.bars(story)
    assert drawn == [Bar(1, (Piece("queued", 0, 10), Piece("first_token", 10, 5), Piece("answer", 15, 25)))]
    assert requests.lengths(drawn) == {"queued": 10, "first_token": 5, "answer": 25}
    assert requests.until(story) == 40


def test_one_that_is_refused_at_once_has_no_bar() -> None:
    assert requests.bars(timeline("refused", step("arrived", 0), step("ended", 0))) == []


def test_bars_of_one_that_waits_go_on_until_now() -> None:
    story = timeline("waiting", step("arrived", 0), step("queued", 5))
    assert requests.bars(story) == [Bar(1, (Piece("queued", 5, 95),))]
    assert requests.until(story) == 100


def test_bars_of_a_second_attempt_begin_where_it_did() -> None:
    story = timeline(
        "running",
        step("arrived", 0),
        step("dispatched", 0),
        step("ended", 20),
        step("queued", 20, 2),
        step("dispatched", 30, 2),
    )
    assert requests.bars(story) == [
        Bar(1, (Piece("answer", 0, 20),)),
        Bar(2, (Piece("queued", 20, 10), Piece("answer", 30, 70))),
    ]


def test_one_that_waits_is_shown_as_it_goes_on(product: FakeOperations) -> None:
    product.open_requests["open"] = wire.LiveRequest(
        "support", "helpdesk", "echo", "interactive", "waiting", 5, (), "waiting for its turn"
    )
    with visiting(product) as local:
        page = local.get("/requests/open")
        part = local.get("/requests/open", headers={"hx-request": "true"})
    assert {"waiting", "Nothing is charged yet."} <= set(words(page.text))
    assert "data-live" in page.text.split("<main", 1)[1].split("</main>")[0]
    assert "<html" not in part.text
    assert "Nothing is charged yet." in part.text
