"""Keys: made, listed, revoked, rotated. A secret leaves here once, in the answer that made it."""

from collections.abc import Iterable

import msgspec

from commonpool.api import wire
from commonpool.api.http import BadRequestError, Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.config import Config
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.problems import listed
from commonpool.store.contract import Key
from commonpool.store.keys import NewKey


class ByKey(msgspec.Struct, frozen=True):
    """One key, by its id: the part between the first two underscores of it."""

    id: str


async def list_keys(operations: Operations, _: Nothing) -> wire.Keys:
    return wire.Keys(tuple(map(_view, await operations.keys())))


async def create(operations: Operations, _: Nothing, new: wire.NewKey) -> wire.CreatedKey:
    return _created(await operations.create_key(resolve(new, operations.config(), operations.now_ns())))


async def revoke(operations: Operations, key: ByKey) -> wire.Key:
    return _view(await operations.revoke_key(key.id))


async def rotate(operations: Operations, key: ByKey, rotation: wire.Rotation) -> wire.CreatedKey:
    return _created(await operations.rotate_key(key.id, rotation.overlap_ns))


def resolve(new: wire.NewKey, config: Config, now_ns: int) -> wire.NewKey:
    """The same with its app filled in. Raises `BadRequestError` where it names what the configuration has not."""
    if new.expires_ns is not None and new.expires_ns <= now_ns:
        raise BadRequestError("the key would expire before it is made; give a later expires_ns", param="expires_ns")
    if new.scope == "admin":
        if new.tenant or new.app or new.tier or new.models is not None:
            raise BadRequestError("a key of scope admin belongs to no tenant; leave tenant, app, tier and models out")
        return new
    tenants = config.policy.tenants
    _known("tenant", new.tenant, tenants)
    app = new.app or DEFAULT_APP
    _known("app", app, config.apps[new.tenant])
    if new.tier is not None:
        _known("tier", new.tier, tenants[new.tenant].priority)
    usable = tenants[new.tenant].models or tuple(config.policy.deployments)
    for model in new.models or ():
        _known("models", model, usable)
    return msgspec.structs.replace(new, app=app)


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
    Endpoint("GET", "/admin/v1/keys", list_keys, "All keys, without their secrets", wire.Keys),
    Endpoint("POST", "/admin/v1/keys", create, "A new key, shown once", wire.CreatedKey, body=wire.NewKey, status=201),
    Endpoint("POST", "/admin/v1/keys/{id}/revoke", revoke, "The key works no more", wire.Key, ByKey),
    Endpoint(
        "POST",
        "/admin/v1/keys/{id}/rotate",
        rotate,
        "A new key in place of this one, which works on for a while",
        wire.CreatedKey,
        ByKey,
        wire.Rotation,
        status=201,
    ),
)
