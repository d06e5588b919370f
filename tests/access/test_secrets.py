"""Secrets at rest: what is sealed opens as what it is, for whom it is, with the right key, and otherwise not."""

import base64
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.access.secrets import MasterKey, Masters, SecretsError, Vault, masters, salt_key
from commonpool.config.structs import Secrets
from commonpool.store.memory import MemoryStore
from commonpool.store.secrets import DataKey
from commonpool.store.sqlite import SqliteStore
from tests.gateway.fakes import config

ONE, TWO = MasterKey(b"1" * 32), MasterKey(b"2" * 32)
TEXT = b"what was asked"


def vault(store: MemoryStore, now: MasterKey | None = ONE, before: MasterKey | None = None) -> Vault:
    return Vault(store, Masters(now, before), lambda: 7)


# -- the master key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(b"\xff" * 32).decode(),
        base64.urlsafe_b64encode(b"\xff" * 32).decode().rstrip("="),
        "ff" * 32,
    ],
    ids=["base64", "of URLs", "hexadecimal"],
)
def test_a_master_key_is_32_bytes_however_they_are_written(text: str) -> None:
    assert MasterKey.parse(text).id == MasterKey(b"\xff" * 32).id


@pytest.mark.parametrize("text", ["correct-horse-battery-staple", "ff" * 31, "A" * 44, "", "é" * 32])
def test_anything_else_is_no_key_and_is_not_repeated(text: str) -> None:
    with pytest.raises(SecretsError, match=r"secrets.master_key names is not a key of 32 bytes.*openssl") as caught:
        MasterKey.parse(text)
    assert not text or text not in str(caught.value)


def test_what_is_derived_is_of_its_key_and_its_purpose() -> None:
    derived = {key.derived(purpose) for key in (ONE, TWO) for purpose in ("wrap", "id", "cache-salt")}
    assert len(derived) == 6
    assert b"1" * 32 not in derived
    assert ONE.id in repr(ONE)
    assert (b"1" * 32).decode() not in repr(ONE)


def test_the_configuration_says_where_the_keys_are(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("22" * 32 + "\n")
    named = Secrets(f"file:{tmp_path / 'new'}", "env:OLD")
    configured = msgspec.structs.replace(config(), secrets=named)
    found = masters(configured, {"OLD": "11" * 32})
    assert (found.now and found.now.id, found.before and found.before.id) == (
        MasterKey(b"\x22" * 32).id,
        MasterKey(b"\x11" * 32).id,
    )
    assert masters(config(), {}) == Masters()
    with pytest.raises(SecretsError, match=r"secrets.previous_master_key is env:OLD, and the environment variable OLD"):
        masters(configured, {})
    with pytest.raises(SecretsError, match=r"What secrets.previous_master_key names is not a key"):
        masters(configured, {"OLD": "short"})


# -- seals -------------------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_for_its_tenant_as_what_it_is() -> None:
    store = MemoryStore()
    sealed = vault(store).seal("a", ("r1", "chat"), TEXT)
    assert TEXT not in sealed
    assert vault(store).open("a", ("r1", "chat"), sealed) == TEXT
    assert vault(store).seal("a", ("r1", "chat"), TEXT) != sealed  # nothing tells that the same was asked again


def test_it_does_not_open_as_anything_else() -> None:
    store = MemoryStore()
    here = vault(store)
    sealed = here.seal("a", ("r1", "chat"), TEXT)
    here.seal("b", ("r1", "chat"), TEXT)
    for tenant, about in (("b", ("r1", "chat")), ("a", ("r2", "chat")), ("a", ("r1c", "hat")), ("a", ("r1",))):
        with pytest.raises(SecretsError, match=f"sealed for tenant {tenant} has been changed"):
            here.open(tenant, about, sealed)


@given(at=st.integers(0), bit=st.integers(0, 7))
def test_it_does_not_open_with_a_bit_changed(at: int, bit: int) -> None:
    here = vault(MemoryStore())
    sealed = bytearray(here.seal("a", (), TEXT))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises(SecretsError):
        here.open("a", (), bytes(sealed))


def test_with_its_data_key_it_is_lost() -> None:
    store = MemoryStore()
    here = vault(store)
    sealed = here.seal("a", (), TEXT)
    here.forget("a")
    for each in (here, vault(store)):
        with pytest.raises(SecretsError, match="data key of tenant a was deleted"):
            each.open("a", (), sealed)
    assert here.open("a", (), here.seal("a", (), b"new")) == b"new"
    with pytest.raises(SecretsError, match="has been changed"):
        here.open("a", (), sealed)


def test_a_data_key_is_of_its_tenant_alone() -> None:
    store = MemoryStore()
    vault(store).seal("a", (), TEXT)
    (key,) = store.data_keys()
    assert b"1" * 32 not in key.wrapped
    store.add_data_key(msgspec.structs.replace(key, tenant="b"))
    with pytest.raises(SecretsError, match="data key of tenant b was changed in the store"):
        vault(store)


def test_two_that_make_a_tenants_first_key_at_once_use_the_same() -> None:
    store = MemoryStore()
    one, other = vault(store), vault(store)
    sealed = one.seal("a", (), TEXT)
    assert other.open("a", (), sealed) == TEXT
    assert one.open("a", (), other.seal("a", (), b"x")) == b"x"


def test_without_a_master_key_nothing_is_sealed() -> None:
    here = vault(MemoryStore(), None)
    assert not here.ready
    with pytest.raises(SecretsError, match=r"without a master key; have secrets\.master_key set"):
        here.seal("a", (), TEXT)


@pytest.mark.parametrize(
    ("now", "before", "sentence"),
    [
        (None, None, f"master key {ONE.id} wraps, and secrets.master_key is not set"),
        (TWO, None, f"names the key {TWO.id}, and the data key of tenant a is wrapped by {ONE.id}"),
    ],
)
def test_a_wrong_key_is_one_sentence_at_the_start(
    now: MasterKey | None, before: MasterKey | None, sentence: str
) -> None:
    store = MemoryStore()
    vault(store).seal("a", (), TEXT)
    with pytest.raises(SecretsError, match=sentence):
        vault(store, now, before)


# -- another master key ------------------------------------------------------------------------------------------------


def test_a_rotation_wraps_every_data_key_anew_and_opens_what_was_sealed() -> None:
    store = MemoryStore()
    first = vault(store)
    sealed = {tenant: first.seal(tenant, (), tenant.encode()) for tenant in "abc"}
    both = vault(store, TWO, ONE)
    sealed["d"] = both.seal("d", (), b"d")
    assert both.rotate() == 3
    assert both.rotate() == 0
    assert {key.master for key in store.data_keys()} == {TWO.id}
    assert {key.created_ns for key in store.data_keys()} == {7}
    for here in (both, vault(store, TWO)):
        assert [here.open(tenant, (), sealed[tenant]) for tenant in "abcd"] == [b"a", b"b", b"c", b"d"]
    with pytest.raises(SecretsError):
        vault(store, ONE)


class Dying(MemoryStore):
    """A store that fails at its n-th rewrap."""

    left = -1

    def rewrap_data_key(self, old: DataKey, new: DataKey) -> bool:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().rewrap_data_key(old, new)


def test_wherever_a_rotation_ends_both_keys_open_everything_and_it_can_be_done_again() -> None:
    tenants = [f"t{n}" for n in range(4)]
    for steps in range(len(tenants)):
        store = Dying()
        first = vault(store)
        sealed = {tenant: first.seal(tenant, (), TEXT) for tenant in tenants}
        store.left = steps
        with pytest.raises(KeyboardInterrupt):
            vault(store, TWO, ONE).rotate()
        assert [key.master for key in store.data_keys()] == [TWO.id] * steps + [ONE.id] * (4 - steps)
        store.left = len(tenants)
        again = vault(store, TWO, ONE)
        assert all(again.open(tenant, (), sealed[tenant]) == TEXT for tenant in tenants)
        assert again.rotate() == 4 - steps
        assert all(vault(store, TWO).open(tenant, (), sealed[tenant]) == TEXT for tenant in tenants)


ROTATE = """
import sys
from pathlib import Path
from commonpool.access.secrets import MasterKey, Masters, Vault
from commonpool.store.sqlite import SqliteStore

class Telling(SqliteStore):
    def rewrap_data_key(self, old, new):
        print(old.tenant, flush=True)
        return super().rewrap_data_key(old, new)

store = Telling(Path(sys.argv[1]))
Vault(store, Masters(MasterKey(b"2" * 32), MasterKey(b"1" * 32)), lambda: 7).rotate()
"""


@pytest.mark.parametrize("after", [2, 7])
def test_a_rotation_that_is_killed_loses_nothing(tmp_path: Path, after: int) -> None:
    tenants = [f"t{n:03}" for n in range(60)]
    store = SqliteStore(tmp_path)
    first = Vault(store, Masters(ONE), lambda: 7)
    sealed = {tenant: first.seal(tenant, (), TEXT) for tenant in tenants}
    store.close()
    with subprocess.Popen([sys.executable, "-c", ROTATE, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(after):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    store = SqliteStore(tmp_path)
    left = sum(key.master == ONE.id for key in store.data_keys())
    assert 0 < left < 60
    both = Vault(store, Masters(TWO, ONE), lambda: 7)
    assert all(both.open(tenant, (), sealed[tenant]) == TEXT for tenant in tenants)
    assert both.rotate() == left
    new = Vault(store, Masters(TWO), lambda: 7)
    assert all(new.open(tenant, (), sealed[tenant]) == TEXT for tenant in tenants)
    store.close()


class Slow(MemoryStore):
    """Who looks a data key up has read it, and is held before it comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.go_on = threading.Event(), threading.Event()
        self.forgotten = 0

    def data_key(self, tenant: str) -> DataKey | None:
        found = super().data_key(tenant)
        self.read.set()
        assert self.go_on.wait(120)
        return found

    def forget_data_key(self, tenant: str) -> None:
        self.forgotten += 1
        super().forget_data_key(tenant)


def test_a_key_that_is_forgotten_while_another_thread_looks_it_up_does_not_come_back() -> None:
    store = Slow()
    store.add_data_key(ONE.wrap("a", b"k" * 32, 1))
    both = vault(store)
    with ThreadPoolExecutor(2) as threads:
        sealing = threads.submit(both.seal, "a", (), TEXT)
        assert store.read.wait(120)
        forgetting = threads.submit(both.forget, "a")
        with suppress(TimeoutError):  # without a lock it is done by then, and the test fails below
            forgetting.result(0.05)
        assert store.forgotten == 0
        store.go_on.set()
        sealed = sealing.result(120)
        forgetting.result(120)
    assert store.data_keys() == ()
    with pytest.raises(SecretsError, match="deleted"):
        both.open("a", (), sealed)


# -- the salt of prompt caches -----------------------------------------------------------------------------------------


def test_the_salt_is_of_the_master_key_or_a_file_of_the_products_own(tmp_path: Path) -> None:
    state = tmp_path / "var"
    assert salt_key(ONE, state) == salt_key(MasterKey(b"1" * 32), state) != salt_key(TWO, state)
    assert not state.exists()
    kept = salt_key(None, state)
    assert len(kept) == 32
    assert kept == salt_key(None, state) != salt_key(None, tmp_path / "other")
    assert stat.S_IMODE((state / "salt").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_salt_that_was_half_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "salt").write_bytes(b"half")
    (tmp_path / "salt.new").write_bytes(b"left over")
    old = os.umask(0)
    try:
        kept = salt_key(None, tmp_path)
    finally:
        os.umask(old)
    assert kept == (tmp_path / "salt").read_bytes() == salt_key(None, tmp_path)
    assert stat.S_IMODE((tmp_path / "salt").stat().st_mode) == 0o600
