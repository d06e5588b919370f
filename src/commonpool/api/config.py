"""The configuration in force: read, compared, replaced as a whole or not at all."""

import asyncio

import msgspec

from commonpool.api import wire
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import ConflictError, Operations
from commonpool.config import Change, Config, Kind, Sources, diff, parse_sources
from commonpool.config.billing import unpriced


class NeedsRestartError(ConflictError):
    """Part of the change cannot be made while the product runs."""

    code = "needs_restart"


async def show_config(operations: Operations, _: Nothing) -> wire.Configuration:
    return wire.Configuration(operations.sources(), operations.config().policy.revision)


async def diff_config(operations: Operations, _: Nothing, wanted: wire.Configuration) -> wire.Changes:
    __, new, changes, revision = await _compare(operations, wanted)
    return wire.Changes(revision, changes, _warnings(operations, new))


async def apply_config(operations: Operations, _: Nothing, wanted: wire.Configuration) -> wire.Changes:
    sources, new, changes, revision = await _compare(operations, wanted)
    fixed = [change.key for change in changes if change.kind is Kind.RESTART]
    if fixed:
        raise NeedsRestartError(
            f"{', '.join(fixed)} cannot change while the product runs, so nothing was changed; leave that out, or stop"
            " the product and start it with this file"
        )
    if changes:
        await operations.apply(sources, new, revision)
    return wire.Changes(operations.config().policy.revision, changes, _warnings(operations, new))


def _warnings(operations: Operations, new: Config) -> tuple[str, ...]:
    return (*new.warnings, *unpriced(new, operations.now_ns()))


async def _compare(
    operations: Operations, wanted: wire.Configuration
) -> tuple[Sources, Config, tuple[Change, ...], int]:
    # The files may come from another folder, or another machine: here, relative paths stay below the same one.
    sources = msgspec.structs.replace(wanted.sources, folder=operations.sources().folder)
    # Parsing takes a while where there are many tenants, and requests go on meanwhile.
    new = await asyncio.to_thread(parse_sources, sources)
    old = operations.config()
    revision = old.policy.revision
    if wanted.revision not in {None, revision}:
        raise ConflictError(
            f"the configuration in force is revision {revision} now, not {wanted.revision}; look at it and try again"
        )
    return sources, new, tuple(diff(old, new)), revision


ENDPOINTS = (
    Endpoint("GET", "/admin/v1/config", show_config, "The files of the configuration in force", wire.Configuration),
    Endpoint(
        "POST",
        "/admin/v1/config/diff",
        diff_config,
        "What applying these files would change",
        wire.Changes,
        body=wire.Configuration,
    ),
    Endpoint(
        "POST",
        "/admin/v1/config/apply",
        apply_config,
        "Bring these files into force, or change nothing",
        wire.Changes,
        body=wire.Configuration,
    ),
)
