"""Accounts and sessions in SQL: each of these runs on one connection, inside a transaction of the store's."""

import msgspec

from commonpool.store.accounts import Account, Session, Whose
from commonpool.store.sql.connection import Connection, Row, placeholders

_ACCOUNT = ", ".join(Account.__struct_fields__)
_SESSION = ", ".join(Session.__struct_fields__)
_PERSON = "account = ? AND issuer = ? AND subject = ?"
_STANDS = (
    "(account = '' OR EXISTS (SELECT 1 FROM accounts WHERE accounts.name = sessions.account"
    " AND accounts.changed_ns = sessions.account_changed_ns AND accounts.disabled_ns IS NULL))"
)
_DIGEST_BYTES = 32
_decode_groups = msgspec.json.Decoder(tuple[str, ...]).decode


def add_account(connection: Connection, account: Account) -> bool:
    """See `AccountStore.add_account`."""
    values = msgspec.structs.astuple(account)
    insert = f"INSERT INTO accounts ({_ACCOUNT}) VALUES ({placeholders(values)}) ON CONFLICT DO NOTHING"  # noqa: S608 - ours
    return bool(connection.run(insert, values))


def accounts(connection: Connection) -> tuple[Account, ...]:
    """See `AccountStore.accounts`."""
    return tuple(Account(*row) for row in connection.query(f"SELECT {_ACCOUNT} FROM accounts ORDER BY name"))  # noqa: S608 - ours


def account(connection: Connection, name: str) -> Account | None:
    """See `AccountStore.account`."""
    rows = connection.query(f"SELECT {_ACCOUNT} FROM accounts WHERE name = ?", (name,))  # noqa: S608 - ours
    return Account(*rows[0]) if rows else None


def replace_account(connection: Connection, old: Account, new: Account) -> bool:
    """See `AccountStore.replace_account`."""
    if account(connection, old.name) != old:
        return False
    connection.run(
        "UPDATE accounts SET password = ?, changed_ns = ?, disabled_ns = ?, note = ? WHERE name = ?",
        (new.password, new.changed_ns, new.disabled_ns, new.note, old.name),
    )
    return True


def remove_account(connection: Connection, name: str, at_ns: int) -> tuple[str, ...] | None:
    """See `AccountStore.remove_account`."""
    if not connection.run("DELETE FROM accounts WHERE name = ?", (name,)):
        return None
    connection.run("DELETE FROM sessions WHERE account = ?", (name,))
    revoked = connection.query(
        "UPDATE keys SET revoked_ns = ? WHERE account = ? AND revoked_ns IS NULL RETURNING key_id", (at_ns, name)
    )
    return tuple(sorted(key_id for (key_id,) in revoked))


def add_session(connection: Connection, session: Session, unused_since_ns: int, keep: int) -> None:
    """See `AccountStore.add_session`."""
    connection.run("DELETE FROM sessions WHERE expires_ns <= ? OR used_ns <= ?", (session.created_ns, unused_since_ns))
    person = (session.account, session.issuer, session.subject)
    connection.run(
        f"DELETE FROM sessions WHERE {_PERSON} AND digest NOT IN "  # noqa: S608 - ours
        f"(SELECT digest FROM sessions WHERE {_PERSON} ORDER BY created_ns DESC, digest LIMIT ?)",
        (*person, *person, keep - 1),
    )
    values = msgspec.structs.asdict(session)
    values["member_of"] = msgspec.json.encode(session.member_of).decode()
    connection.run(f"INSERT INTO sessions ({_SESSION}) VALUES ({placeholders(values)})", tuple(values.values()))  # noqa: S608 - ours


def session(connection: Connection, digest: bytes) -> Session | None:
    """See `AccountStore.session`."""
    rows = connection.query(
        f"SELECT {_SESSION} FROM sessions WHERE digest = ? AND {_STANDS}",  # noqa: S608 - ours
        (digest,),
    )
    return _session(rows[0]) if rows else None


def sessions(
    connection: Connection, now_ns: int, unused_since_ns: int, limit: int, whose: Whose | None
) -> tuple[Session, ...]:
    """See `AccountStore.sessions`."""
    person = () if whose is None else msgspec.structs.astuple(whose)
    rows = connection.query(
        f"SELECT {_SESSION} FROM sessions WHERE expires_ns > ? AND used_ns > ? AND {_STANDS}"  # noqa: S608 - ours
        f"{f' AND {_PERSON}' if person else ''} ORDER BY created_ns DESC, digest LIMIT ?",
        (now_ns, unused_since_ns, *person, limit),
    )
    return tuple(map(_session, rows))


def sessions_named(connection: Connection, beginning: bytes) -> tuple[Session, ...]:
    """See `AccountStore.sessions_named`."""
    least, most = (beginning.ljust(_DIGEST_BYTES, filled) for filled in (b"\x00", b"\xff"))
    rows = connection.query(
        f"SELECT {_SESSION} FROM sessions WHERE digest >= ? AND digest <= ? ORDER BY digest",  # noqa: S608 - ours
        (least, most),
    )
    return tuple(map(_session, rows))


def touch_session(connection: Connection, digest: bytes, used_ns: int) -> None:
    """See `AccountStore.touch_session`."""
    connection.run("UPDATE sessions SET used_ns = ? WHERE digest = ?", (used_ns, digest))


def end_session(connection: Connection, digest: bytes) -> None:
    """See `AccountStore.end_session`."""
    connection.run("DELETE FROM sessions WHERE digest = ?", (digest,))


def _session(row: Row) -> Session:
    values = dict(zip(Session.__struct_fields__, row, strict=True))
    return Session(**{**values, "member_of": _decode_groups(values["member_of"])})
