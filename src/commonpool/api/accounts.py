"""Accounts of people and services: made, listed, given another password, disabled, enabled, removed."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import people as wire
from commonpool.store.accounts import Account

MANAGE = (Permission.MANAGE_ACCOUNTS, PLATFORM)


class ByName(msgspec.Struct, frozen=True):
    """One account, by its name."""

    name: str


async def list_accounts(operations: Operations, _: Nothing, __: Who) -> wire.Accounts:
    return wire.Accounts(tuple(_view(operations, each) for each in await operations.people().accounts.all()))


async def add(operations: Operations, _: Nothing, new: wire.NewAccount, __: Who) -> wire.Account:
    return _view(operations, await operations.people().accounts.add(new.name, new.kind, new.password, new.note))


async def set_password(operations: Operations, by: ByName, new: wire.NewPassword, _: Who) -> wire.Account:
    return _view(operations, await operations.people().accounts.set_password(by.name, new.password))


async def disable(operations: Operations, by: ByName, _: Who) -> wire.Account:
    return _view(operations, await operations.people().accounts.disable(by.name))


async def enable(operations: Operations, by: ByName, _: Who) -> wire.Account:
    return _view(operations, await operations.people().accounts.enable(by.name))


async def remove(operations: Operations, by: ByName, _: Who) -> wire.RemovedAccount:
    return wire.RemovedAccount(by.name, await operations.remove_account(by.name))


def _view(operations: Operations, account: Account) -> wire.Account:
    caller = operations.people().of_account(account)
    return wire.Account(
        account.name,
        account.kind,
        account.created_ns,
        account.disabled_ns,
        account.note,
        caller.roles,
        tuple(wire.Held(binding.role, binding.tenant) for binding in caller.bindings),
    )


ENDPOINTS = (
    Endpoint("GET", "/admin/v1/accounts", list_accounts, *MANAGE, "All accounts", wire.Accounts),
    Endpoint(
        "POST",
        "/admin/v1/accounts",
        add,
        *MANAGE,
        "A new account",
        wire.Account,
        body=wire.NewAccount,
        status=201,
    ),
    Endpoint(
        "POST",
        "/admin/v1/accounts/{name}/password",
        set_password,
        *MANAGE,
        "The account has another password; who was logged in is not any more",
        wire.Account,
        ByName,
        wire.NewPassword,
    ),
    Endpoint(
        "POST",
        "/admin/v1/accounts/{name}/disable",
        disable,
        *MANAGE,
        "The account may not be used: neither sessions nor keys of it count",
        wire.Account,
        ByName,
    ),
    Endpoint(
        "POST",
        "/admin/v1/accounts/{name}/enable",
        enable,
        *MANAGE,
        "The account may be used again",
        wire.Account,
        ByName,
    ),
    Endpoint(
        "DELETE",
        "/admin/v1/accounts/{name}",
        remove,
        *MANAGE,
        "The account is gone, and its keys are revoked",
        wire.RemovedAccount,
        ByName,
    ),
)
