"""Keys: made, listed, revoked, rotated. A secret leaves here once, in the answer that made it."""

from collections.abc import Iterable
from typing import Final

import msgspec

from commonpool.access.callers import RoleError, by_admin_key
from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, NotFoundError, Operations
from commonpool.api.subjects import ACROSS, Asked, Subject, Who, no_tenant
from commonpool.api.wire import keys as wire
from commonpool.api.wire.people import NOTE_CHARS_MAX
from commonpool.config import Config
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.limits import OF_JOBS
from commonpool.config.problems import listed
from commonpool.core.model import NO_LIMITS, NS_PER_HOUR, Limits
from commonpool.core.networks import NETWORKS_MAX, NetworkError, network
from commonpool.store.contract import Key
from commonpool.store.keys import NewKey

LIMIT_MAX: Final = 2**53 - 1  # what every reader of JSON keeps exactly
LIVE_KEYS_MAX: Final = 1000  # of a tenant, and of the platform: all are held in memory
OVERLAP_DAYS_MAX: Final = 90


class ByKey(msgspec.Struct, frozen=True):
    """One key, by its id: the part between the first two underscores of it."""

    id: str


async def list_keys(operations: Operations, _: Nothing, who: Who) -> wire.Keys:
    return wire.Keys(tuple(_view(key) for key in await operations.keys().list() if key.tenant in who.scope))


async def create(operations: Operations, _: Nothing, new: wire.NewKey, __: Who) -> wire.CreatedKey:
    if new.account:
        await _check_owner(operations, new)
    resolved = resolve(new, operations.config(), operations.now_ns())
    await _check_room(operations, resolved.tenant)
    return _created(await operations.keys().create(resolved))


async def revoke(operations: Operations, key: ByKey, _: Who) -> wire.Key:
    return _view(await operations.keys().revoke(key.id))


async def rotate(operations: Operations, key: ByKey, rotation: wire.Rotation, _: Who) -> wire.CreatedKey:
    if rotation.overlap_ns > OVERLAP_DAYS_MAX * 24 * NS_PER_HOUR:
        raise BadRequestError(
            f"the old key may work for {OVERLAP_DAYS_MAX} days beside the new one at most; give a shorter overlap_ns, "
            "and make a second key for what is to live longer",
            param="overlap_ns",
        )
    for old in await operations.keys().list():
        if old.key_id == key.id:
            await _check_room(operations, old.tenant)
    return _created(await operations.keys().rotate(key.id, rotation.overlap_ns))


async def _check_room(operations: Operations, tenant: str) -> None:
    """Of one tenant, or of the platform "", so many keys may live at a time."""
    now = operations.now_ns()
    live = sum(
        key.tenant == tenant and key.revoked_ns is None and (key.expires_ns is None or key.expires_ns > now)
        for key in await operations.keys().list()
    )
    if live >= LIVE_KEYS_MAX:
        whose = f"tenant {tenant!r}" if tenant else "the platform"
        raise BadRequestError(
            f"{whose} has {live} live keys, and {LIVE_KEYS_MAX} may live at a time; revoke those that are not used"
        )


async def _check_owner(operations: Operations, new: wire.NewKey) -> None:
    """A key may be of a service account, whose roles it has then."""
    if new.scope != "admin" or new.role or new.tenant:
        raise BadRequestError(
            "a key of an account is one of scope admin, with the account's roles; leave role and tenant out",
            param="account",
        )
    account = await operations.people().account(new.account)
    if account is None or account.kind != "service":
        raise BadRequestError(
            f"account {new.account!r} is no service that there is; make it with `commonpool accounts add --service`",
            param="account",
        )


async def _new_owner(operations: Operations, asked: Asked) -> str | None:
    """Whose a new key is to be. One that stands for an account can do what that can: it is the platform's to make."""
    new = asked.body
    if new.account or (new.scope == "admin" and not new.tenant):
        return ""
    return new.tenant if new.tenant in operations.config().policy.tenants else None


async def _owner(operations: Operations, asked: Asked) -> str | None:
    for key in await operations.keys().list():
        if key.key_id == asked.params.id:
            return "" if key.account else key.tenant
    return None


def _unknown(_: Operations, asked: Asked) -> NotFoundError:
    return NotFoundError(
        f"there is no key with the id {asked.params.id!r}; `commonpool keys list` shows those there are"
    )


NEW: Final = Subject(_new_owner, no_tenant)
ONE: Final = Subject(_owner, _unknown)


def resolve(new: wire.NewKey, config: Config, now_ns: int) -> wire.NewKey:
    """The same with its app filled in. Raises `BadRequestError` where it names what the configuration has not."""
    if new.expires_ns is not None and new.expires_ns <= now_ns:
        raise BadRequestError("the key would expire before it is made; give a later expires_ns", param="expires_ns")
    _check_written(new)
    new = msgspec.structs.replace(new, networks=_networks(new.networks))
    if new.scope == "admin":
        _check_admin(new)
        return new
    for param in ("role", "account"):
        if getattr(new, param):
            raise BadRequestError(f"a key of scope data has no {param}; leave it out", param=param)
    _check_limits(new.limits)
    tenants = config.policy.tenants
    _known("tenant", new.tenant, tenants)
    app = new.app or DEFAULT_APP
    _known("app", app, config.apps[new.tenant])
    for tier in new.tiers or ():
        _known("tiers", tier, tenants[new.tenant].priority)
    if new.tier is not None:
        _known("tier", new.tier, tenants[new.tenant].priority if new.tiers is None else new.tiers)
    usable = tenants[new.tenant].models or tuple(config.policy.deployments)
    for model in new.models or ():
        _known("models", model, usable)
    return msgspec.structs.replace(new, app=app)


def _check_written(new: wire.NewKey) -> None:
    if len(new.note) > NOTE_CHARS_MAX or not new.note.isprintable():
        raise BadRequestError(
            f"note is {len(new.note)} characters; write one line of at most {NOTE_CHARS_MAX} printable ones",
            param="note",
        )
    for name in ("models", "tiers"):
        if getattr(new, name) == ():
            raise BadRequestError(f"a key without {name} could do nothing; leave {name} out for all", param=name)


def _check_admin(new: wire.NewKey) -> None:
    """It serves no requests, and its role is one of the platform, or of the tenant that it is bound to."""
    given = [name for name in ("app", "tier", "tiers", "models") if getattr(new, name) not in ("", None)]
    if given or new.limits != NO_LIMITS:
        raise BadRequestError(
            f"a key of scope admin serves no requests; leave {', '.join(given) or 'limits'} out",
            param=given[0] if given else "limits",
        )
    if not new.account:
        try:
            by_admin_key("", new.role, new.tenant)
        except RoleError as error:
            raise BadRequestError(str(error), param="role") from None


def _networks(written: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The same, each written in one way."""
    if written is None:
        return None
    if not 0 < len(written) <= NETWORKS_MAX:
        raise BadRequestError(
            f"a key may come from 1 to {NETWORKS_MAX} networks, not {len(written)}; leave networks out for all",
            param="networks",
        )
    try:
        return tuple(str(network(each)) for each in written)
    except NetworkError as error:
        raise BadRequestError(str(error), param="networks") from None


def _check_limits(limits: Limits) -> None:
    for limit in OF_JOBS.values():
        if getattr(limits, limit.field) is not None:
            raise BadRequestError(f"no job is of a key; leave limits.{limit.field} out", param="limits")
    for name, amount in msgspec.structs.asdict(limits).items():
        if amount is not None and not 0 < amount <= LIMIT_MAX:
            raise BadRequestError(f"limits.{name} is {amount}; write a whole number from 1 on", param="limits")


def _known(param: str, name: str, known: Iterable[str]) -> None:
    names = tuple(known)
    if name not in names:
        raise BadRequestError(f"{param} {name!r} does not exist for this key; there is {listed(names)}", param=param)


def _view(key: Key) -> wire.Key:
    fields = {name: getattr(key, name) for name in wire.Key.__struct_fields__ if name != "id"}
    return wire.Key(id=key.key_id, **fields)


def _created(new: NewKey) -> wire.CreatedKey:
    return wire.CreatedKey(new.text, _view(new.key))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/keys",
        list_keys,
        Permission.READ_KEYS,
        ACROSS,
        "All keys, without their secrets",
        wire.Keys,
    ),
    Endpoint(
        "POST",
        "/admin/v1/keys",
        create,
        Permission.MANAGE_KEYS,
        NEW,
        "A new key, shown once",
        wire.CreatedKey,
        body=wire.NewKey,
        status=201,
    ),
    Endpoint(
        "POST",
        "/admin/v1/keys/{id}/revoke",
        revoke,
        Permission.REVOKE_KEYS,
        ONE,
        "The key works no more",
        wire.Key,
        ByKey,
    ),
    Endpoint(
        "POST",
        "/admin/v1/keys/{id}/rotate",
        rotate,
        Permission.MANAGE_KEYS,
        ONE,
        "A new key in place of this one, which works on for a while",
        wire.CreatedKey,
        ByKey,
        wire.Rotation,
        status=201,
    ),
)
