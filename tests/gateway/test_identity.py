"""Who is calling: only the whole right key, only while it lives, and nothing of it is kept or shown."""

import base64
import hashlib
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.keys import ALPHABET, KEY_LENGTH
from commonpool.core.model import Limits
from commonpool.gateway.identity import Identity, Principal
from commonpool.store.keys import NewKey, mint, rotate
from commonpool.store.memory import MemoryStore

HERE = "192.0.2.1"
KEY = mint(tenant="a", app="chat", now_ns=0, tier="batch", models=("m",))
ANN = Principal(KEY.key.key_id, "a", "chat", "batch", ("m",), "data")


class Clock:
    def __init__(self) -> None:
        self.now_ns = 100

    def __call__(self) -> int:
        return self.now_ns


def bearer(key: NewKey, scheme: str = "Bearer ") -> bytes:
    return (scheme + key.text).encode()


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "bEaReR ", "  Bearer   "])
def test_bearer_in_any_case(scheme: str) -> None:
    assert Identity([KEY.key], Clock()).identify(bearer(KEY, scheme), HERE) == ANN


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic " + KEY.text.encode(),
        KEY.text.encode(),
        b"Bearer" + KEY.text.encode(),
        bearer(KEY) + b" " + KEY.text.encode(),
        bearer(KEY) + b"x",
        bearer(KEY)[:-1],
        b"Bearer " + b"\xff" * KEY_LENGTH,
        b"Bearer " + b"' OR '1'='1".ljust(KEY_LENGTH),
        b"Bearer " + b"x" * 100_000,
    ],
)
def test_anything_else_is_nobody(header: bytes) -> None:
    assert Identity([KEY.key], Clock()).identify(header, HERE) is None


@given(st.integers(0, KEY_LENGTH - 1), st.sampled_from(ALPHABET))
def test_a_key_with_one_wrong_character_is_nobody(place: int, character: str) -> None:
    text = KEY.text[:place] + character + KEY.text[place + 1 :]
    found = Identity([KEY.key], Clock()).identify(b"Bearer " + text.encode(), HERE)
    assert (found == ANN) == (text == KEY.text)


def test_the_secret_of_one_key_does_not_open_another() -> None:
    other = mint(tenant="b", app="chat", now_ns=0)
    identity = Identity([KEY.key, other.key], Clock())
    mixed = KEY.text[:14] + other.text[14:]
    assert identity.identify(b"Bearer " + mixed.encode(), HERE) is None
    assert identity.identify(bearer(other), HERE) == Principal(other.key.key_id, "b", "chat", None, None, "data")


def test_a_key_ends_by_the_clock() -> None:
    clock = Clock()
    key = mint(tenant="a", app="chat", now_ns=0, expires_ns=200)
    identity = Identity([key.key], clock)
    clock.now_ns = 199
    assert identity.identify(bearer(key), HERE) is not None
    clock.now_ns = 200
    assert identity.identify(bearer(key), HERE) is None


def test_adding_and_revoking_count_from_the_next_call() -> None:
    identity = Identity([], Clock())
    assert identity.identify(bearer(KEY), HERE) is None
    identity.add(KEY.key)
    assert identity.identify(bearer(KEY), HERE) == ANN
    identity.revoke(KEY.key.key_id)
    identity.revoke("unknown")
    assert identity.identify(bearer(KEY), HERE) is None


def test_a_key_that_was_revoked_in_the_store_is_not_loaded() -> None:
    store = MemoryStore()
    store.add_key(KEY.key)
    identity = Identity(store.list_keys(), Clock())
    identity.add(store.revoke_key(KEY.key.key_id, 50))
    assert identity.identify(bearer(KEY), HERE) is None
    assert Identity(store.list_keys(), Clock()).identify(bearer(KEY), HERE) is None


def test_while_a_rotation_overlaps_both_keys_count() -> None:
    store, clock = MemoryStore(), Clock()
    store.add_key(KEY.key)
    new, ending = rotate(store, KEY.key.key_id, now_ns=100, overlap_ns=50)
    identity = Identity([KEY.key], clock)
    identity.add(new.key)
    identity.add(ending)
    assert identity.identify(bearer(KEY), HERE) == ANN
    clock.now_ns = 150
    assert identity.identify(bearer(KEY), HERE) is None
    assert identity.identify(bearer(new), HERE) is not None


def hashes(key: NewKey) -> list[bytes]:
    """What a reader of the store, of a list or of a log has of a key: everything but the key."""
    salt, digest = key.key.salt, key.key.digest
    raw = [salt, digest, salt + digest, digest + salt, hashlib.sha256(key.text.encode()).digest(), bytes(32), b""]
    written = [spell(each) for each in raw for spell in (bytes.hex, base64.b64encode, base64.urlsafe_b64encode)]
    parts = [key.key.key_id.encode(), *raw, *(each if isinstance(each, bytes) else each.encode() for each in written)]
    fitted = [part[: KEY_LENGTH - 14].ljust(KEY_LENGTH - 14, b"0") for part in parts]
    shaped = [key.text[:14].encode() + part for part in (*parts, *fitted)]
    return [*parts, *(part.ljust(KEY_LENGTH, b"\0")[:KEY_LENGTH] for part in parts), *shaped]


@pytest.mark.parametrize("scheme", ["Bearer ", "Basic ", "Digest ", ""])
def test_nothing_that_is_kept_of_a_key_is_a_key(scheme: str) -> None:
    kept = [KEY, mint(tenant="", app="", scope="admin", now_ns=0, role="operator")]
    identity = Identity([each.key for each in kept], Clock())
    for key in kept:
        assert identity.identify(bearer(key), HERE) is not None
        assert key.text.encode() not in hashes(key)
        for text in hashes(key):
            assert identity.identify(scheme.encode() + text, HERE) is None


def calls(identity: Identity, header: bytes) -> list[str]:
    """What is called to find out whose a header is, in order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)
        elif event == "c_call":
            found.append(arg.__name__)

    sys.setprofile(note)
    try:
        identity.identify(header, HERE)
    finally:
        sys.setprofile(None)
    return found[:-1]  # that ends the noting


def test_what_is_wrong_of_a_key_changes_nothing_of_what_is_done_to_find_out() -> None:
    """Digests of one length are compared in constant time, also for an id that nobody has."""
    identity = Identity([KEY.key, mint(tenant="a", app="chat", now_ns=0).key], Clock())
    stranger = mint(tenant="a", app="chat", now_ns=0)
    wrong_secret = KEY.text[:14] + stranger.text[14:]
    first, *others = (calls(identity, b"Bearer " + text.encode()) for text in (KEY.text, wrong_secret, stranger.text))
    assert "compare_digest" in " ".join(first)
    assert others == [first, first]


def test_a_key_counts_where_it_may_come_from() -> None:
    key = mint(tenant="a", app="chat", now_ns=0, networks=("10.0.0.0/8", "fd00::/8"))
    identity = Identity([key.key], Clock())
    for inside in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert identity.identify(bearer(key), inside) is not None
    for outside in ("11.0.0.1", "127.0.0.1", "fe80::1", "", None):
        assert identity.identify(bearer(key), outside) is None


def test_what_bounds_a_key_goes_with_it() -> None:
    limits = Limits(requests_per_minute=5, tokens_out_max=7, run_ns_max=9)
    key = mint(tenant="a", app="chat", now_ns=0, tiers=("batch",), limits=limits)
    found = Identity([key.key], Clock()).identify(bearer(key), HERE)
    assert found is not None
    assert (found.tiers, found.sizes) == (("batch",), Limits(tokens_out_max=7, run_ns_max=9))
    admin = mint(tenant="a", app="", scope="admin", now_ns=0, role="viewer", account="robot")
    found = Identity([admin.key], Clock()).identify(bearer(admin), HERE)
    assert found is not None
    assert (found.scope, found.tenant, found.role, found.account) == ("admin", "a", "viewer", "robot")


def test_no_raw_key_is_held() -> None:
    identity = Identity([KEY.key], Clock())
    identity.identify(bearer(KEY), HERE)
    assert KEY.text[14:] not in repr(vars(identity))
