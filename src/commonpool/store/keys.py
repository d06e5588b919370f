"""Making keys: the text is shown once, the store keeps a salted digest of it.

A generated secret of 131 bits needs no slow hash: there is nothing to guess, and it is checked on every request.
"""

import hashlib
import secrets

import msgspec

from commonpool.core.keys import ALPHABET, ID_LENGTH, SECRET_LENGTH, key_text
from commonpool.core.model import NO_LIMITS, Limits
from commonpool.store.contract import Key, KeyNotFoundError, Scope, Store

SALT_BYTES = 16
FIRST_START = "made at the first start"  # the note of keys that were printed, perhaps into a log
NS_MAX = 2**63 - 1  # the last moment that a store can keep


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just made. `text` is the key itself: show it once and forget it."""

    text: str
    key: Key

    def __repr__(self) -> str:
        """Without the text, so that no log or traceback has it."""
        return f"NewKey(key_id={self.key.key_id!r})"


def digest(salt: bytes, text: bytes) -> bytes:
    """What the store keeps of a key's text."""
    return hashlib.sha256(salt + text).digest()


def mint(
    *,
    tenant: str,
    app: str,
    now_ns: int,
    scope: Scope = "data",
    tier: str | None = None,
    models: tuple[str, ...] | None = None,
    expires_ns: int | None = None,
    note: str = "",
    role: str = "",
    account: str = "",
    tiers: tuple[str, ...] | None = None,
    networks: tuple[str, ...] | None = None,
    limits: Limits = NO_LIMITS,
) -> NewKey:
    """A new key, which no store knows yet. The arguments are as in `Key`."""
    return _with_a_secret(
        Key(
            key_id="",
            salt=b"",
            digest=b"",
            scope=scope,
            tenant=tenant,
            app=app,
            created_ns=now_ns,
            tier=tier,
            models=models,
            expires_ns=expires_ns,
            note=note,
            role=role,
            account=account,
            tiers=tiers,
            networks=networks,
            limits=limits,
        )
    )


def rotate(store: Store, key_id: str, *, now_ns: int, overlap_ns: int) -> tuple[NewKey, Key]:
    """A successor of a key with the same rights, and the old key, which ends `overlap_ns` from now or as it would have.

    The successor lives as long as the old one was made for. KeyNotFoundError for an unknown, revoked or expired key.
    """
    old = next((key for key in store.list_keys() if key.key_id == key_id and key.revoked_ns is None), None)
    if old is None:
        raise KeyNotFoundError.not_live(key_id)
    if old.expires_ns is not None and old.expires_ns <= now_ns:
        raise KeyNotFoundError(
            f"The key {key_id!r} has expired, and a rotation would bring it back; make a new one: "
            "`commonpool keys create`."
        )
    ends_ns = None if old.expires_ns is None else min(now_ns + old.expires_ns - old.created_ns, NS_MAX)
    # Nobody but who asked has seen the successor, whatever became of a key of the first start.
    note = "" if old.note == FIRST_START else old.note
    new = _with_a_secret(msgspec.structs.replace(old, created_ns=now_ns, expires_ns=ends_ns, note=note))
    return new, store.rotate_key(key_id, new.key, min(now_ns + overlap_ns, NS_MAX))


def _with_a_secret(key: Key) -> NewKey:
    """The same key under an id and with a secret of its own."""
    key_id = _random(ID_LENGTH)
    text = key_text(key_id, _random(SECRET_LENGTH))
    salt = secrets.token_bytes(SALT_BYTES)
    return NewKey(text, msgspec.structs.replace(key, key_id=key_id, salt=salt, digest=digest(salt, text.encode())))


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
