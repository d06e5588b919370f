"""The tables of docs/authorization.md: the policy as people read it, written by hand."""

import re
from pathlib import Path
from typing import Literal

import msgspec

DOCUMENT = Path(__file__).parents[2] / "docs" / "authorization.md"

About = Literal["platform", "several", "tenant"]
Reach = Literal["all", "tenants", "own", ""]
ROLES = (
    "platform-admin",
    "operator",
    "finance",
    "viewer",
    "auditor",
    "tenant-admin",
    "developer",
    "viewer in a tenant",
    "app",
)
OPEN = frozenset({"read_health", "read_description", "log_in"})  # of nobody, too


class Route(msgspec.Struct, frozen=True):
    """A call, the permission that it asks for, and what it is about."""

    method: str
    path: str
    permission: str
    about: About


def reaches() -> dict[str, dict[str, Reach]]:
    """How far each role reaches with each permission."""
    header, *rows = _table("permission")
    assert tuple(header[1:]) == ROLES
    return {permission.strip("`"): dict(zip(ROLES, cells, strict=True)) for permission, *cells in rows}  # type: ignore[arg-type] # msgspec would say no more


def routes() -> list[Route]:
    """Every call."""
    _, *rows = _table("call")
    found = [(*call.split(), permission.strip("`"), about) for call, permission, about in rows]
    return msgspec.convert([dict(zip(Route.__struct_fields__, row, strict=True)) for row in found], list[Route])


def _table(first: str) -> list[list[str]]:
    lines = DOCUMENT.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        if not re.fullmatch(r"[|-]+", line):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found
