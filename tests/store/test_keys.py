"""Making keys: each is its own, the text is shown once, rotation keeps the rights."""

import hashlib
from typing import Any

import msgspec
import pytest

from commonpool.core.keys import ALPHABET, ID, KEY_LENGTH, SECRET_LENGTH, is_key
from commonpool.core.model import Limits
from commonpool.store.contract import KeyNotFoundError
from commonpool.store.keys import FIRST_START, NS_MAX, mint, rotate
from commonpool.store.memory import MemoryStore


def test_a_new_key_is_well_formed_and_kept_only_as_a_salted_digest() -> None:
    new = mint(tenant="a", app="chat", now_ns=7, tier="batch", models=("m",), expires_ns=9, note="of Ann")
    assert is_key(new.text)
    assert new.key.key_id == new.text[ID]
    assert new.key.digest == hashlib.sha256(new.key.salt + new.text.encode()).digest()
    assert (new.key.scope, new.key.tenant, new.key.app, new.key.tier) == ("data", "a", "chat", "batch")
    assert (new.key.models, new.key.created_ns, new.key.expires_ns, new.key.note) == (("m",), 7, 9, "of Ann")


def test_no_two_keys_are_alike() -> None:
    made = [mint(tenant="a", app="chat", now_ns=7) for _ in range(100)]
    assert len({new.text for new in made}) == 100
    assert len({new.key.key_id for new in made}) == 100
    assert len({new.key.salt for new in made}) == 100


def test_a_secret_has_128_bits_and_more() -> None:
    assert len(ALPHABET) == len(set(ALPHABET))
    assert len(ALPHABET) ** SECRET_LENGTH >= 2**128
    made = [mint(tenant="a", app="chat", now_ns=7) for _ in range(200)]
    assert {new.text for new in made if len(new.text) != KEY_LENGTH} == set()
    for place in range(SECRET_LENGTH):  # each of its characters may be any
        assert len({new.text[14 + place] for new in made}) > len(ALPHABET) // 2
    assert min(len(new.key.salt) for new in made) >= 16


def test_the_text_is_in_no_representation() -> None:
    new = mint(tenant="a", app="chat", now_ns=7)
    assert new.text not in f"{new} {new!r} {new.key!r}"


def test_a_successor_has_the_same_rights_and_both_work_for_a_while() -> None:
    store = MemoryStore()
    bounds: dict[str, Any] = {"tiers": ("batch",), "networks": ("10.0.0.0/8",), "limits": Limits(queue_length=3)}
    whose: dict[str, Any] = {"role": "viewer", "account": "robot", "note": "of Ann"}
    old = mint(tenant="a", app="chat", now_ns=100, scope="admin", tier="batch", models=("m",), **bounds, **whose)
    store.add_key(old.key)
    new, ending = rotate(store, old.key.key_id, now_ns=200, overlap_ns=50)
    assert ending.expires_ns == 250
    assert store.list_keys() == (ending, new.key)
    assert (new.key.scope, new.key.tenant, new.key.app, new.key.tier) == ("admin", "a", "chat", "batch")
    assert (new.key.models, new.key.created_ns, new.key.expires_ns, new.key.note) == (("m",), 200, None, "of Ann")
    assert {name: getattr(new.key, name) for name in (*bounds, *whose)} == bounds | whose
    own = {"key_id", "salt", "digest", "created_ns"}
    assert msgspec.structs.asdict(new.key).keys() - own == {
        name for name in old.key.__struct_fields__ if getattr(old.key, name) == getattr(new.key, name)
    }
    assert new.text != old.text


def test_a_successor_lives_as_long_as_the_old_key_was_made_for() -> None:
    store = MemoryStore()
    old = mint(tenant="a", app="chat", now_ns=100, expires_ns=130)
    store.add_key(old.key)
    new, ending = rotate(store, old.key.key_id, now_ns=120, overlap_ns=50)
    assert (ending.expires_ns, new.key.expires_ns) == (130, 150)


def test_no_key_outlives_the_last_moment_that_a_store_can_keep() -> None:
    store = MemoryStore()
    old = mint(tenant="a", app="chat", now_ns=100, expires_ns=NS_MAX)
    store.add_key(old.key)
    new, ending = rotate(store, old.key.key_id, now_ns=200, overlap_ns=NS_MAX)
    assert (ending.expires_ns, new.key.expires_ns) == (NS_MAX, NS_MAX)


def test_a_revoked_or_unknown_key_has_no_successor() -> None:
    store = MemoryStore()
    old = mint(tenant="a", app="chat", now_ns=100)
    store.add_key(old.key)
    store.revoke_key(old.key.key_id, 110)
    for key_id in (old.key.key_id, "unknown"):
        with pytest.raises(KeyNotFoundError, match=f"no live key with the id '{key_id}'"):
            rotate(store, key_id, now_ns=120, overlap_ns=50)


def test_a_rotation_does_not_bring_back_what_has_expired() -> None:
    store = MemoryStore()
    old = mint(tenant="a", app="chat", now_ns=100, expires_ns=130)
    store.add_key(old.key)
    with pytest.raises(KeyNotFoundError, match=f"key '{old.key.key_id}' has expired.*`commonpool keys create`"):
        rotate(store, old.key.key_id, now_ns=130, overlap_ns=50)
    assert store.list_keys() == (old.key,)
    rotate(store, old.key.key_id, now_ns=129, overlap_ns=50)


def test_the_successor_of_a_key_of_the_first_start_is_none_itself() -> None:
    store = MemoryStore()
    old = mint(tenant="a", app="chat", now_ns=100, note=FIRST_START)
    store.add_key(old.key)
    new, ending = rotate(store, old.key.key_id, now_ns=200, overlap_ns=50)
    assert (ending.note, new.key.note) == (FIRST_START, "")
