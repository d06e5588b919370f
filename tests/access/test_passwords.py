"""Passwords: which will do, how they are kept, and that checking one tells nothing and takes little."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

import argon2
import pytest
from argon2 import PasswordHasher

from commonpool.access.passwords import WAITING_MAX, Passwords, check
from commonpool.access.problems import PasswordError, TooManyGuessesError
from tests.access.house import FAST, PASSWORD


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    with closing(Passwords(FAST)) as made:
        yield made


@pytest.mark.parametrize(
    ("password", "says"),
    [
        ("elevenchars", "has 11 characters; choose one of at least 12"),
        ("", "has 0 characters"),
        ("x" * 1025, "is longer than 1024 bytes"),
        ("ü" * 513, "is longer than 1024 bytes"),
        ("abababababab", "repeats a few characters"),
        ("my-name-is-Bobby", "has the account's name in it"),
    ],
)
def test_what_will_not_do(password: str, says: str) -> None:
    with pytest.raises(PasswordError, match=says):
        check(password, "bobby")


def test_what_will_do() -> None:
    for password in (PASSWORD, "пароль для входа", "🐴🔋📎 0123456789"):
        check(password, "bobby")


def test_it_is_kept_as_argon2id_with_a_salt_of_its_own(passwords: Passwords) -> None:
    async def story() -> None:
        one, two = await passwords.hashed(PASSWORD), await passwords.hashed(PASSWORD)
        assert one.startswith("$argon2id$v=19$")
        assert one != two
        assert PASSWORD not in one
        assert await passwords.matches(one, PASSWORD)
        assert not await passwords.matches(one, PASSWORD + " ")
        assert not await passwords.matches("", PASSWORD)
        assert not await passwords.matches("not a hash", PASSWORD)

    asyncio.run(story())


def test_the_product_s_own_choice_is_the_second_one_of_rfc_9106() -> None:
    made = argon2.extract_parameters(PasswordHasher().hash("x"))
    assert (made.type, made.memory_cost, made.time_cost, made.parallelism) == (argon2.Type.ID, 64 * 1024, 3, 4)
    with closing(Passwords()) as passwords:
        assert not passwords.is_outdated(PasswordHasher().hash("x"))
        assert passwords.is_outdated(FAST.hash("x"))


def test_the_same_characters_typed_in_another_way_are_the_same(passwords: Passwords) -> None:
    async def story() -> None:
        kept = await passwords.hashed("gr\u00fcne Wiese am See")
        assert await passwords.matches(kept, "gru\u0308ne Wiese am See")

    asyncio.run(story())


def test_a_password_that_is_no_text_is_wrong_like_any_other(passwords: Passwords) -> None:
    async def story() -> None:
        kept = await passwords.hashed(PASSWORD)
        assert not await passwords.matches(kept, "\ud800")
        assert not await passwords.matches(kept, "x" * 100_000)

    asyncio.run(story())


class Counting(PasswordHasher):
    """Tells in which thread it works, and can be held."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.threads: list[str] = []
        self.costs: list[tuple[int, ...]] = []
        self.free = threading.Event()
        self.free.set()

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002 - the library's name
        self.free.wait(120)
        self.threads.append(threading.current_thread().name)
        made = argon2.extract_parameters(hash if isinstance(hash, str) else hash.decode())
        self.costs.append((made.memory_cost, made.time_cost, made.parallelism, made.hash_len, made.salt_len))
        return super().verify(hash, password)


def test_nobody_s_password_costs_the_same_work_as_somebody_s() -> None:
    hasher = Counting()

    async def story(passwords: Passwords) -> None:
        kept = await passwords.hashed(PASSWORD)
        await passwords.matches(kept, "wrong wrong wrong")
        await passwords.matches("", "wrong wrong wrong")

    with closing(Passwords(hasher)) as counted:
        asyncio.run(story(counted))
    first, second = hasher.costs
    assert first == second


def test_all_are_checked_on_one_thread_that_is_not_the_loop_s() -> None:
    hasher = Counting()

    async def story(passwords: Passwords) -> None:
        await asyncio.gather(*(passwords.matches("", PASSWORD) for _ in range(5)))

    with closing(Passwords(hasher)) as counted:
        asyncio.run(story(counted))
    assert len(hasher.threads) == 5
    assert set(hasher.threads) == {"passwords_0"}


def test_beyond_a_few_that_wait_a_login_is_refused() -> None:
    hasher = Counting()
    hasher.free.clear()

    async def story(passwords: Passwords) -> None:
        waiting = [asyncio.ensure_future(passwords.matches("", PASSWORD)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyGuessesError, match="too many log in at this moment") as caught:
            await passwords.matches("", PASSWORD)
        assert caught.value.wait_ns == 10**9
        hasher.free.set()
        assert await asyncio.gather(*waiting) == [False] * WAITING_MAX
        assert not await passwords.matches("", PASSWORD)  # and then there is room again

    with closing(Passwords(hasher)) as counted:
        asyncio.run(story(counted))
    assert len(hasher.threads) == WAITING_MAX + 1
