"""Accounts: made, changed, disabled, removed; and who proves to have one."""

from contextlib import closing

import pytest
from argon2 import PasswordHasher

from commonpool.access.accounts import Accounts
from commonpool.access.passwords import Passwords
from commonpool.access.problems import AccountError, NameTakenError, NoAccountError, PasswordError
from commonpool.store.accounts import Account
from commonpool.store.memory import MemoryStore
from tests.access.house import FAST, PASSWORD, SECOND, House

OTHER = "another horse battery"


def kept(house: House, name: str = "ann") -> Account:
    account = house.store.account(name)
    assert account is not None
    return account


def test_a_person_has_a_password_which_is_kept_as_a_hash(alone: House) -> None:
    made = alone.run(alone.people.accounts.add("ann", "person", PASSWORD, "of the desk"))
    assert made == kept(alone)
    assert (made.name, made.kind, made.note, made.created_ns, made.disabled_ns) == (
        "ann",
        "person",
        "of the desk",
        alone.now,
        None,
    )
    assert made.password.startswith("$argon2id$")
    assert PASSWORD not in repr(made)
    assert made.password not in repr(made)


def test_a_service_has_none(alone: House) -> None:
    made = alone.run(alone.people.accounts.add("erp", "service", ""))
    assert made.password == ""
    for password in ("", PASSWORD):
        assert alone.run(alone.people.accounts.proven("erp", password)) is None
    with pytest.raises(AccountError, match="a service has no password"):
        alone.run(alone.people.accounts.add("crm", "service", PASSWORD))
    with pytest.raises(AccountError, match="'erp' is a service, which has keys and no password"):
        alone.run(alone.people.accounts.set_password("erp", PASSWORD))


@pytest.mark.parametrize("name", ["", "Ann", "a b", "../ann", "a" * 64, "ann\n", ".ann"])
def test_a_name_is_one(alone: House, name: str) -> None:
    with pytest.raises(AccountError, match="is not a name of an account"):
        alone.run(alone.people.accounts.add(name, "person", PASSWORD))


def test_what_cannot_be_is_said(alone: House) -> None:
    accounts = alone.people.accounts
    alone.run(accounts.add("ann", "person", PASSWORD))
    with pytest.raises(NameTakenError, match="there is an account 'ann' already"):
        alone.run(accounts.add("ann", "person", OTHER))
    with pytest.raises(PasswordError, match="at least 12"):
        alone.run(accounts.add("bo", "person", "short"))
    with pytest.raises(PasswordError, match="at least 12"):
        alone.run(accounts.set_password("ann", ""))
    for change in (accounts.disable, accounts.enable, accounts.remove, accounts.find):
        with pytest.raises(NoAccountError, match="there is no account 'bo'"):
            alone.run(change("bo"))
    assert alone.run(accounts.proven("ann", PASSWORD)) == kept(alone)


def test_who_has_the_password_is_proven(alone: House) -> None:
    accounts = alone.people.accounts
    made = alone.run(accounts.add("ann", "person", PASSWORD))
    assert alone.run(accounts.proven("ann", PASSWORD)) == made
    assert alone.run(accounts.proven("ann", OTHER)) is None
    assert alone.run(accounts.proven("nobody", PASSWORD)) is None
    alone.run(accounts.set_password("ann", OTHER))
    assert alone.run(accounts.proven("ann", PASSWORD)) is None
    assert alone.run(accounts.proven("ann", OTHER)) is not None


def test_a_disabled_account_proves_nothing_until_it_is_enabled(alone: House) -> None:
    accounts = alone.people.accounts
    alone.run(accounts.add("ann", "person", PASSWORD))
    alone.now += SECOND
    disabled = alone.run(accounts.disable("ann"))
    assert (disabled.disabled_ns, disabled.changed_ns) == (alone.now, alone.now)
    assert alone.run(accounts.proven("ann", PASSWORD)) is None
    alone.now += SECOND
    assert alone.run(accounts.disable("ann")).disabled_ns == alone.now - SECOND  # the first time stays
    assert alone.run(accounts.enable("ann")).disabled_ns is None
    assert alone.run(accounts.proven("ann", PASSWORD)) is not None


def test_every_change_is_a_new_state_though_the_clock_stands_still(alone: House) -> None:
    accounts = alone.people.accounts
    states = [alone.run(accounts.add("ann", "person", PASSWORD)).changed_ns]
    states += [alone.run(change("ann")).changed_ns for change in (accounts.disable, accounts.enable)]
    states.append(alone.run(accounts.set_password("ann", OTHER)).changed_ns)
    assert states == sorted(set(states))


def test_a_login_makes_a_weaker_hash_stronger_and_nothing_else(alone: House) -> None:
    made = alone.run(alone.people.accounts.add("ann", "person", PASSWORD))
    weaker = Account("ann", "person", _weaker().hash(PASSWORD), made.created_ns, made.changed_ns)
    alone.store.replace_account(made, weaker)
    assert alone.run(alone.people.accounts.proven("ann", OTHER)) is None
    assert kept(alone) == weaker
    proven = alone.run(alone.people.accounts.proven("ann", PASSWORD))
    assert proven == kept(alone)
    assert FAST.check_needs_rehash(weaker.password)
    assert not FAST.check_needs_rehash(kept(alone).password)
    assert kept(alone).changed_ns == weaker.changed_ns  # so its sessions go on
    assert alone.run(alone.people.accounts.proven("ann", PASSWORD)) is not None


class Strict(MemoryStore):
    """A store that does not take every text, as PostgreSQL does not."""

    def account(self, name: str) -> Account | None:
        assert "\0" not in name
        return super().account(name)

    def remove_account(self, name: str, at_ns: int) -> tuple[str, ...] | None:
        assert "\0" not in name
        return super().remove_account(name, at_ns)


def test_what_is_no_name_is_asked_of_no_store(alone: House) -> None:
    with closing(Passwords(FAST)) as passwords:
        accounts = Accounts(Strict(), passwords, lambda: alone.now)
        for name in ("a\0", "\0", "ann\n"):
            assert alone.run(accounts.proven(name, PASSWORD)) is None
            for change in (accounts.disable, accounts.remove, accounts.find):
                with pytest.raises(NoAccountError):
                    alone.run(change(name))


def _weaker() -> PasswordHasher:
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, hash_len=16)
