"""What every store does with what is answered later."""

from contextlib import closing

import msgspec
import pytest

from commonpool.core.model import Request
from commonpool.store.contract import Store, StoreError
from commonpool.store.later import LaterHead, SealedLater
from tests.store.places import Place


def entry(name: str, taken_ns: int = 1, tenant: str = "a", status: int = 0) -> SealedLater:
    request = Request(name, tenant, "app", "m", "interactive", "batch", 10, 5, cost_center="C1", bytes_in=9, key="k1")
    return SealedLater(LaterHead(request, taken_ns, taken_ns + 100, status, 7), b"\x00sealed\xff" + name.encode())


def test_what_is_taken_is_there_in_its_order_until_it_is_forgotten(store: Store) -> None:
    for each in (entry("2", 5), entry("1", 7), entry("3", 5, "b")):
        store.add_later(each)
    assert [head.id for head in store.laters()] == ["2", "3", "1"]
    assert store.laters()[0] == entry("2", 5).head
    assert store.later("1") == entry("1", 7)
    assert store.later("4") is None
    assert store.delete_later("1")
    assert not store.delete_later("1")
    assert [head.id for head in store.laters()] == ["2", "3"]


def test_what_another_version_wrote_is_read_or_left_out(place: Place) -> None:
    with closing(place.open()) as opened:
        for name in ("1", "2", "3"):
            opened.add_later(entry(name))
    old = '{"id":"2","tenant":"a","app":"app","model":"m","tier":"interactive","endpoint":"batch","tokens_in":10}'
    for id_, request in (("1", '{"id":7}'), ("2", old)):
        place.run(f"UPDATE later SET request = '{request}' WHERE id = '{id_}'")
    with closing(place.open()) as opened:
        assert [head.id for head in opened.laters()] == ["2", "3"]
        assert opened.laters()[0].request == Request("2", "a", "app", "m", "interactive", "batch", 10)


def test_an_id_is_there_once(store: Store) -> None:
    store.add_later(entry("1"))
    with pytest.raises(StoreError):
        store.add_later(entry("1", 9))
    assert store.later("1") == entry("1")


def test_the_answer_takes_the_place_of_what_was_asked_once(store: Store) -> None:
    store.add_later(entry("1"))
    answer = SealedLater(msgspec.structs.replace(entry("1").head, status=200, until_ns=900, size=3), b"yes")
    assert store.end_later(answer)
    assert store.later("1") == answer
    assert not store.end_later(msgspec.structs.replace(answer, sealed=b"other"))
    assert store.later("1") == answer
    assert not store.end_later(SealedLater(entry("2", status=500).head, b"gone"))
    assert store.later("2") is None
