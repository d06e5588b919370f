"""Secrets at rest: a master key from outside the store, and a data key for each tenant, kept wrapped in the store.

What is sealed for a tenant is encrypted with its data key (AES-256-GCM); the data key is encrypted with a key derived
from the master key (HKDF-SHA256). So to change the master key is to wrap the data keys anew, and to forget a data key
is to lose what was sealed with it, in every backup. Each seal and each wrapping is bound to whose and what it is: one
that was put in another's place does not open.
"""

import base64
import binascii
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from commonpool.config.secrets import SecretMissingError, secret
from commonpool.config.structs import Config
from commonpool.store.secrets import DataKey, SecretStore

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12  # as GCM wants it; random ones do for 2**32 seals under one key
ID_BYTES: Final = 8
SALT_FILE: Final = "salt"
_HOW = "write 32 random bytes there, in base64 or hexadecimal: `openssl rand -base64 32`"


class SecretsError(Exception):
    """What is sealed cannot be opened, or nothing can be sealed: why, and what to do. No key is in it."""


class MasterKey:
    """What wraps data keys. `id` tells which one it is, and nothing of it; `key` is the setting that names it."""

    def __init__(self, material: bytes, key: str = "secrets.master_key") -> None:
        self._material = material
        self._wrapping = AESGCM(self.derived("wrap"))
        self.id = self.derived("id")[:ID_BYTES].hex()
        self.key = key

    @classmethod
    def parse(cls, text: str, key: str = "secrets.master_key") -> "MasterKey":
        """From its text. SecretsError where that is no key."""
        for decode in (bytes.fromhex, _base64):
            with suppress(ValueError):
                material = decode(text)
                if len(material) == KEY_BYTES:
                    return cls(material, key)
        raise SecretsError(f"What {key} names is not a key of {KEY_BYTES} bytes; {_HOW}.")

    def derived(self, purpose: str) -> bytes:
        """A key for this purpose alone, of 32 bytes."""
        return HKDF(SHA256(), KEY_BYTES, None, f"commonpool/{purpose}".encode()).derive(self._material)

    def wrap(self, tenant: str, material: bytes, created_ns: int) -> DataKey:
        return DataKey(tenant, created_ns, self.id, _encrypt(self._wrapping, material, _bound("data key", tenant)))

    def unwrap(self, key: DataKey) -> bytes:
        """SecretsError where it was changed, or is another tenant's."""
        try:
            return _decrypt(self._wrapping, key.wrapped, _bound("data key", key.tenant))
        except InvalidTag:
            raise SecretsError(
                f"The data key of tenant {key.tenant} was changed in the store, so what it sealed cannot be opened; "
                "restore the store from a backup."
            ) from None

    def __repr__(self) -> str:
        return f"MasterKey({self.id})"


class Masters(msgspec.Struct, frozen=True):
    """The master keys that are at hand: the one in force, and the one before it while the change goes on."""

    now: MasterKey | None = None
    before: MasterKey | None = None

    def of(self, key: DataKey) -> MasterKey:
        """The one that wraps this key. SecretsError where it is not at hand."""
        for each in (self.now, self.before):
            if each is not None and each.id == key.master:
                return each
        if self.now is None:
            raise SecretsError(
                f"The store has data keys that the master key {key.master} wraps, and secrets.master_key is not set; "
                "set it to where that key is."
            )
        raise SecretsError(
            f"secrets.master_key names the key {self.now.id}, and the data key of tenant {key.tenant} is wrapped by "
            f"{key.master}; name that one, as secrets.previous_master_key where it is to be replaced."
        )


def masters(config: Config, environment: Mapping[str, str] = os.environ) -> Masters:
    """The master keys that the configuration names. SecretsError."""
    named = config.secrets
    return Masters(
        _master("secrets.master_key", named.master_key, environment),
        _master("secrets.previous_master_key", named.previous_master_key, environment),
    )


def _master(key: str, where: str | None, environment: Mapping[str, str]) -> MasterKey | None:
    if where is None:
        return None
    try:
        return MasterKey.parse(secret(key, where, environment), key)
    except SecretMissingError as error:
        raise SecretsError(str(error)) from None


class Vault:
    """Seals for tenants and opens what it sealed. Blocks; any thread may call. `clock` gives ns since the epoch."""

    def __init__(self, store: SecretStore, keys: Masters, clock: Callable[[], int]) -> None:
        """SecretsError where a data key of the store cannot be unwrapped."""
        self._store = store
        self._masters = keys
        self._clock = clock
        self._open: dict[str, AESGCM] = {}
        self._changing = threading.Lock()  # or a key that was just read of the store comes back after it is forgotten
        for key in store.data_keys():
            keys.of(key).unwrap(key)

    @property
    def ready(self) -> bool:
        """Whether there is a master key, so that something can be sealed."""
        return self._masters.now is not None

    def seal(self, tenant: str, about: Iterable[str], text: bytes) -> bytes:
        """`text` encrypted for a tenant; it opens only as what it is `about`. SecretsError, StoreError."""
        return _encrypt(self._key(tenant, make=True), text, _bound(tenant, *about))

    def open(self, tenant: str, about: Iterable[str], sealed: bytes) -> bytes:
        """What was sealed. SecretsError where it was changed or is about something else, or the data key is gone."""
        try:
            return _decrypt(self._key(tenant, make=False), sealed, _bound(tenant, *about))
        except InvalidTag:
            raise SecretsError(f"What was sealed for tenant {tenant} has been changed; it does not open.") from None

    def forget(self, tenant: str) -> None:
        """What was sealed for the tenant can never be opened again."""
        with self._changing:
            self._store.forget_data_key(tenant)
            self._open.pop(tenant, None)

    def rotate(self) -> int:
        """Have the master key in force wrap every data key; returns how many another one had wrapped until now.

        Each is replaced by itself: whatever interrupts this, every data key is wrapped by one of the two.
        """
        master = self._masters.now
        if master is None:
            raise SecretsError("There is no master key to change to; set secrets.master_key.")
        count = 0
        for key in self._store.data_keys():
            if key.master != master.id:
                anew = master.wrap(key.tenant, self._masters.of(key).unwrap(key), key.created_ns)
                count += self._store.rewrap_data_key(key, anew)
        return count

    def _key(self, tenant: str, *, make: bool) -> AESGCM:
        found = self._open.get(tenant)
        if found is not None:
            return found
        with self._changing:
            return self._open.get(tenant) or self._look_up(tenant, make=make)

    def _look_up(self, tenant: str, *, make: bool) -> AESGCM:
        key = self._store.data_key(tenant)
        if key is None:
            if not make:
                raise SecretsError(f"The data key of tenant {tenant} was deleted, and what it sealed is lost with it.")
            if self._masters.now is None:
                raise SecretsError("Nothing can be encrypted without a master key; have secrets.master_key set.")
            fresh = self._masters.now.wrap(tenant, secrets.token_bytes(KEY_BYTES), self._clock())
            key = self._store.add_data_key(fresh)
        found = self._open[tenant] = AESGCM(self._masters.of(key).unwrap(key))
        return found


def salt_key(master: MasterKey | None, state: Path) -> bytes:
    """The secret that prompt caches are salted with: of the master key, or one of its own in the folder `state`.

    OSError where that cannot be read or written.
    """
    if master is not None:
        return master.derived("cache-salt")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = state / SALT_FILE
    with suppress(FileNotFoundError):
        kept = file.read_bytes()
        if len(kept) == KEY_BYTES:
            return kept
    fresh = secrets.token_bytes(KEY_BYTES)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(fresh)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
    return fresh


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError from error


def _bound(*parts: str) -> bytes:
    """What a seal is bound to: each part with its length, so that no two lists of them are alike."""
    return b"".join(len(text).to_bytes(4, "big") + text for text in (part.encode() for part in parts))


def _encrypt(key: AESGCM, text: bytes, bound: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + key.encrypt(nonce, text, bound)


def _decrypt(key: AESGCM, sealed: bytes, bound: bytes) -> bytes:
    return key.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
