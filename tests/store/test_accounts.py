"""What every store does with accounts and sessions."""

from contextlib import closing
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonpool.store.accounts import Account, Session, Whose
from commonpool.store.contract import Store
from commonpool.store.keys import mint
from commonpool.store.memory import MemoryStore
from tests.store.places import Place

ANN = Account("ann", "person", "$argon2id$one", created_ns=10, changed_ns=10, note="of the desk")
ERP = Account("erp", "service", "", created_ns=20, changed_ns=20)


def session(name: str = "s", created_ns: int = 100, **fields: Any) -> Session:
    """A session of Ann's, as she is."""
    made = Session(name.encode(), created_ns, created_ns, created_ns + 1000, "ann", ANN.changed_ns)
    return msgspec.structs.replace(made, **fields)


def issued(name: str, subject: str, **fields: Any) -> Session:
    """A session of somebody whom the issuer knows."""
    return session(name, account="", account_changed_ns=0, issuer="https://id", subject=subject, **fields)


def test_accounts_are_there_by_name_and_no_two_have_one(store: Store) -> None:
    assert store.add_account(ERP)
    assert store.add_account(ANN)
    assert not store.add_account(msgspec.structs.replace(ANN, password="other"))
    assert store.accounts() == (ANN, ERP)
    assert (store.account("ann"), store.account("nobody")) == (ANN, None)


def test_an_account_is_replaced_only_as_it_was_seen(store: Store) -> None:
    store.add_account(ANN)
    changed = msgspec.structs.replace(ANN, password="$argon2id$two", changed_ns=11, disabled_ns=11, note="")
    assert store.replace_account(ANN, changed)
    assert not store.replace_account(ANN, msgspec.structs.replace(ANN, password="late"))
    assert store.account("ann") == changed
    assert not store.replace_account(ERP, ERP)
    assert store.accounts() == (changed,)


def test_a_session_is_found_by_its_digest_alone(store: Store) -> None:
    store.add_account(ANN)
    mine, other = session("a"), issued("b", "7", email="bo@house.example", member_of=("x", "y"))
    for each in (mine, other):
        store.add_session(each, 0, 8)
    assert (store.session(b"a"), store.session(b"b"), store.session(b"c")) == (mine, other, None)
    store.end_session(b"a")
    store.end_session(b"a")
    assert (store.session(b"a"), store.session(b"b")) == (None, other)


def test_a_session_ends_with_the_state_of_its_account(store: Store) -> None:
    store.add_account(ANN)
    store.add_session(session("a"), 0, 8)
    rehashed = msgspec.structs.replace(ANN, password="$argon2id$stronger")
    assert store.replace_account(ANN, rehashed)
    assert store.session(b"a") is not None  # the same password, kept in another way
    disabled = msgspec.structs.replace(rehashed, changed_ns=50, disabled_ns=50)
    store.replace_account(rehashed, disabled)
    assert store.session(b"a") is None
    enabled = msgspec.structs.replace(disabled, changed_ns=60, disabled_ns=None)
    store.replace_account(disabled, enabled)
    assert store.session(b"a") is None  # it does not come back
    store.add_session(session("late"), 0, 8)  # of a login that began before all that
    assert store.session(b"late") is None


def test_a_disabled_account_has_no_session_whenever_it_was_opened(store: Store) -> None:
    store.add_account(msgspec.structs.replace(ANN, disabled_ns=ANN.changed_ns))
    store.add_session(session("a"), 0, 8)
    assert store.session(b"a") is None


def test_with_an_account_go_its_sessions_and_its_keys(store: Store) -> None:
    store.add_account(ANN)
    store.add_account(ERP)
    first, second, ended, another = (
        msgspec.structs.replace(mint(tenant="", app="", now_ns=1, scope="admin").key, account=whose)
        for whose in ("erp", "erp", "erp", "ann")
    )
    for key in (first, second, ended, another):
        store.add_key(key)
    store.revoke_key(ended.key_id, 5)
    store.add_session(session("a"), 0, 8)
    assert store.remove_account("erp", 77) == tuple(sorted((first.key_id, second.key_id)))
    assert {key.key_id: key.revoked_ns for key in store.list_keys()} == {
        first.key_id: 77,
        second.key_id: 77,
        ended.key_id: 5,
        another.key_id: None,
    }
    assert store.remove_account("erp", 78) is None
    assert store.accounts() == (ANN,)
    assert store.remove_account("ann", 79) == (another.key_id,)
    assert store.session(b"a") is None
    store.add_account(ANN)
    assert store.session(b"a") is None  # one that comes again under the name has nothing of it


def test_a_person_keeps_the_newest_sessions(store: Store) -> None:
    store.add_account(ANN)
    for at in range(4):
        store.add_session(session(f"a{at}", 100 + at), 0, 2)
        store.add_session(issued(f"b{at}", "7", created_ns=100 + at), 0, 2)
    store.add_session(issued("c", "8"), 0, 2)
    assert [at for at in range(4) if store.session(b"a%d" % at)] == [2, 3]
    assert [at for at in range(4) if store.session(b"b%d" % at)] == [2, 3]
    assert store.session(b"c") is not None


def test_sessions_that_are_not_over_are_listed_of_one_person_or_of_all(store: Store) -> None:
    store.add_account(ANN)
    store.add_account(ERP)
    for at in (100, 102):
        store.add_session(session(f"a{at}", at), 0, 8)
    store.add_session(issued("b", "7", created_ns=101), 0, 8)
    every = store.sessions(0, 0, 9)
    assert [each.digest for each in every] == [b"a102", b"b", b"a100"]
    assert [each.digest for each in store.sessions(0, 0, 2)] == [b"a102", b"b"]
    assert [each.digest for each in store.sessions(0, 0, 9, Whose("ann", "", ""))] == [b"a102", b"a100"]
    assert store.sessions(every[0].expires_ns, 0, 9) == ()
    assert [each.digest for each in store.sessions(0, 100, 9)] == [b"a102", b"b"]  # not used since then
    store.replace_account(ANN, msgspec.structs.replace(ANN, changed_ns=200))
    assert [each.digest for each in store.sessions(0, 0, 9)] == [b"b"]


def test_a_session_is_found_by_the_beginning_of_its_digest(store: Store) -> None:
    first, last = (msgspec.structs.replace(issued("x", "7"), digest=bytes([0xFF, at] * 16)) for at in (1, 0xFF))
    for each in (first, last):
        store.add_session(each, 0, 8)
    assert store.sessions_named(last.digest[:8]) == (last,)
    assert store.sessions_named(first.digest[:1]) == (first, last)
    assert store.sessions_named(b"\x00" * 8) == ()


def test_what_is_over_is_forgotten_when_another_begins(store: Store) -> None:
    store.add_account(ANN)
    store.add_session(session("expired", expires_ns=200), 0, 8)
    store.add_session(session("unused"), 0, 8)
    store.add_session(session("used"), 0, 8)
    store.touch_session(b"used", 160)
    store.touch_session(b"nobody's", 160)
    store.add_session(session("new", 200), 150, 8)
    found = store.session(b"used")
    assert found is not None
    assert found.used_ns == 160
    assert [store.session(name) is None for name in (b"expired", b"unused", b"new")] == [True, True, False]


def test_they_are_there_after_a_restart(place: Place) -> None:
    with closing(place.open()) as before:
        before.add_account(ANN)
        before.add_session(session("a", member_of=("ü",)), 0, 8)
    with closing(place.open()) as after:
        assert after.accounts() == (ANN,)
        assert after.session(b"a") == session("a", member_of=("ü",))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "password", "disable", "enable", "remove", "login", "use", "logout"]),
        st.sampled_from(["ann", "bo"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


def _step(store: Store, what: str, name: str, number: int, now: int) -> object:
    account = store.account(name)
    digest = f"{name}{number}".encode()
    match what:
        case "add":
            return store.add_account(Account(name, "person", "p", now, now))
        case "remove":
            return store.remove_account(name, now)
        case "use":
            store.touch_session(digest, now)
        case "logout":
            store.end_session(digest)
        case "login" if account is not None:
            store.end_session(digest)
            opened = Session(digest, now, now, now + 12, name, account.changed_ns)
            store.add_session(opened, unused_since_ns=now - 6, keep=2)
        case "password" | "disable" | "enable" if account is not None:
            disabled = {"disable": now, "enable": None}.get(what, account.disabled_ns)
            new = msgspec.structs.replace(account, password=f"p{now}", changed_ns=now, disabled_ns=disabled)
            return store.replace_account(account, new)
    return None


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_store_says_the_same_of_the_same_steps(store: Store, steps: list[tuple[str, str, int]]) -> None:
    for name in ("ann", "bo"):
        store.remove_account(name, 0)
    model = MemoryStore()
    for now, (what, name, number) in enumerate(steps, 1):
        assert _step(store, what, name, number, now) == _step(model, what, name, number, now)
        digest = f"{name}{number}".encode()
        assert store.session(digest) == model.session(digest)
    assert store.accounts() == model.accounts()
    for digest in (f"{name}{number}".encode() for name in ("ann", "bo") for number in range(4)):
        assert store.session(digest) == model.session(digest)
