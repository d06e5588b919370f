"""The configuration in force: read, compared, replaced as a whole or not at all. Policies are a part of it."""

import asyncio

import msgspec

from commonpool.access import policy_files
from commonpool.access.permissions import Permission
from commonpool.access.policy_files import Policies
from commonpool.api.deciding import Call, decide_too
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import ConflictError, Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import config as wire
from commonpool.config import Change, Config, Kind, Sources, diff, parse_sources
from commonpool.config.billing import unpriced

ACCESS = "access"
POLICIES = f"{ACCESS}.policies"
APPLY = "/admin/v1/config/apply"
DIGEST_SHOWN = 12  # of 64; enough to tell two apart


class NeedsRestartError(ConflictError):
    """Part of the change cannot be made while the product runs."""

    code = "needs_restart"


class _Comparison(msgspec.Struct, frozen=True):
    """What is wanted, and how it differs from what is in force."""

    sources: Sources
    config: Config
    policies: Policies
    changes: tuple[Change, ...]
    revision: int


async def show_config(operations: Operations, _: Nothing, __: Who) -> wire.Configuration:
    return wire.Configuration(operations.sources(), operations.config().policy.revision)


async def show_policies(operations: Operations, _: Nothing, __: Who) -> wire.PolicyFiles:
    policies = operations.authority().policies
    return wire.PolicyFiles(policies.texts, policies.digest)


async def diff_config(operations: Operations, _: Nothing, wanted: wire.Configuration, __: Who) -> wire.Changes:
    found = await _compare(operations, wanted)
    return wire.Changes(found.revision, found.changes, _warnings(operations, found.config))


async def apply_config(operations: Operations, _: Nothing, wanted: wire.Configuration, who: Who) -> wire.Changes:
    found = await _compare(operations, wanted)
    fixed = [change.key for change in found.changes if change.kind is Kind.RESTART]
    if fixed:
        raise NeedsRestartError(
            f"{', '.join(fixed)} cannot change while the product runs, so nothing was changed; leave that out, or stop"
            " the product and start it with this file"
        )
    # Or whoever may apply a configuration could give himself every other permission.
    changes_access = any(change.key.partition(".")[0] == ACCESS for change in found.changes)
    if changes_access:
        await decide_too(operations, Permission.MANAGE_ACCESS, Call("POST", APPLY, who.visit), who)
    if found.changes:
        await operations.apply(found.sources, found.config, found.policies, found.revision)
    return wire.Changes(operations.config().policy.revision, found.changes, _warnings(operations, found.config))


def _warnings(operations: Operations, new: Config) -> tuple[str, ...]:
    return (*new.warnings, *unpriced(new, operations.now_ns()))


async def _compare(operations: Operations, wanted: wire.Configuration) -> _Comparison:
    # The files may come from another folder, or another machine: here, relative paths stay below the same one.
    sources = msgspec.structs.replace(wanted.sources, folder=operations.sources().folder)
    # Parsing takes a while where there are many tenants, and requests go on meanwhile.
    new = await asyncio.to_thread(parse_sources, sources)
    policies = await asyncio.to_thread(policy_files.load, new.access.policies)
    old = operations.config()
    revision = old.policy.revision
    if wanted.revision not in {None, revision}:
        raise ConflictError(
            f"the configuration in force is revision {revision} now, not {wanted.revision}; look at it and try again"
        )
    changes = tuple(diff(old, new))
    before = operations.authority().policies
    if policies.digest != before.digest and not any(change.key == POLICIES for change in changes):
        changes += (_of_policies(before, policies),)
    return _Comparison(sources, new, policies, changes, revision)


def _of_policies(old: Policies, new: Policies) -> Change:
    """The files of the folder are others than those in force."""
    return Change(POLICIES, _edition(old), _edition(new), Kind.AT_ONCE, "decides who may do what from the next call on")


def _edition(policies: Policies) -> str:
    return f"edition {policies.digest[:DIGEST_SHOWN]}"


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/config",
        show_config,
        Permission.READ_CONFIG,
        PLATFORM,
        "The files of the configuration in force",
        wire.Configuration,
    ),
    Endpoint(
        "GET",
        "/admin/v1/policies",
        show_policies,
        Permission.READ_CONFIG,
        PLATFORM,
        "The policies in force, the product's and the operator's, and what they are checked against",
        wire.PolicyFiles,
    ),
    Endpoint(
        "POST",
        "/admin/v1/config/diff",
        diff_config,
        Permission.READ_CONFIG,
        PLATFORM,
        "What applying these files would change",
        wire.Changes,
        body=wire.Configuration,
    ),
    Endpoint(
        "POST",
        APPLY,
        apply_config,
        Permission.APPLY_CONFIG,
        PLATFORM,
        "Bring these files into force, or change nothing",
        wire.Changes,
        body=wire.Configuration,
    ),
)
