"""Prompts in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from commonpool.store.prompts import PromptHead, PromptLog, PromptPlace, SealedPrompt
from commonpool.store.sql.connection import Connection

TRIM: Final = 100  # entries that are looked at, at a time, while there is too much
_LOG: Final = PromptLog.__struct_fields__
_HEAD: Final = PromptHead.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_HEAD)} FROM prompts"  # noqa: S608 - names are ours


def prompt_logs(connection: Connection) -> tuple[PromptLog, ...]:
    """See `PromptStore.prompt_logs`."""
    rows = connection.query(f"SELECT {', '.join(_LOG)} FROM prompt_logs ORDER BY tenant")  # noqa: S608 - names are ours
    return tuple(PromptLog(*row) for row in rows)


def save_prompt_log(connection: Connection, log: PromptLog) -> None:
    """See `PromptStore.save_prompt_log`."""
    drop_prompt_log(connection, log.tenant)
    connection.insert("prompt_logs", _LOG, [msgspec.structs.astuple(log)])


def drop_prompt_log(connection: Connection, tenant: str) -> None:
    """See `PromptStore.drop_prompt_log`."""
    connection.run("DELETE FROM prompt_logs WHERE tenant = ?", (tenant,))


def add_prompts(connection: Connection, prompts: Sequence[SealedPrompt]) -> None:
    """See `PromptStore.add_prompts`."""
    places = ", ".join("?" * (len(_HEAD) + 1))
    statement = f"INSERT INTO prompts ({', '.join(_HEAD)}, sealed) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    for each in prompts:
        connection.run(statement, (*msgspec.structs.astuple(each.head), each.sealed))


def prompts(connection: Connection, tenant: str, before: PromptPlace | None, limit: int) -> tuple[PromptHead, ...]:
    """See `PromptStore.prompts`."""
    where, values = "tenant = ?", [tenant]
    more: list[Any] = []
    if before is not None:
        at_ns, request_id = before
        where += " AND (at_ns < ? OR (at_ns = ? AND request_id < ?))"
        more = [at_ns, at_ns, request_id]
    rows = connection.query(
        f"{_SELECT} WHERE {where} ORDER BY at_ns DESC, request_id DESC LIMIT ?", (*values, *more, limit)
    )
    return tuple(PromptHead(*row) for row in rows)


def prompt(connection: Connection, tenant: str, request_id: str) -> SealedPrompt | None:
    """See `PromptStore.prompt`."""
    rows = connection.query(
        f"SELECT {', '.join(_HEAD)}, sealed FROM prompts WHERE tenant = ? AND request_id = ?",  # noqa: S608 - as above
        (tenant, request_id),
    )
    return SealedPrompt(PromptHead(*rows[0][:-1]), bytes(rows[0][-1])) if rows else None


def prompt_bytes(connection: Connection, tenant: str) -> int:
    """See `PromptStore.prompt_bytes`."""
    return int(connection.query("SELECT COALESCE(SUM(size), 0) FROM prompts WHERE tenant = ?", (tenant,))[0][0])


def delete_prompts(connection: Connection, tenant: str, request_id: str | None) -> int:
    """See `PromptStore.delete_prompts`."""
    if request_id is None:
        return connection.run("DELETE FROM prompts WHERE tenant = ?", (tenant,))
    return connection.run("DELETE FROM prompts WHERE tenant = ? AND request_id = ?", (tenant, request_id))


def trim_prompts(connection: Connection, tenant: str, before_ns: int, bytes_max: int) -> int:
    """See `PromptStore.trim_prompts`."""
    gone = connection.run("DELETE FROM prompts WHERE tenant = ? AND at_ns < ?", (tenant, before_ns))
    left = prompt_bytes(connection, tenant)
    while left > bytes_max:
        oldest = connection.query(
            "SELECT at_ns, request_id, size FROM prompts WHERE tenant = ? ORDER BY at_ns, request_id LIMIT ?",
            (tenant, TRIM),
        )
        for at_ns, request_id, size in oldest:
            if left <= bytes_max:
                break
            gone += connection.run(
                "DELETE FROM prompts WHERE tenant = ? AND at_ns = ? AND request_id = ?", (tenant, at_ns, request_id)
            )
            left -= size
    return gone
