"""Given tenants of which one keeps its prompts, when they ask, then that one's are kept, encrypted, and no more."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from commonpool.access.secrets import MasterKey, Masters, SecretsError, Vault
from commonpool.control.prompts import Prompts
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore
from commonpool.store.prompts import PromptHead, SealedPrompt, Spoken
from tests.gateway.fakes import run

MASTER = MasterKey(b"1" * 32)
DAY = 86_400_000_000_000
ASKED = b'{"messages":[{"content":"MARK"}]}'


class Store(MemoryStore):
    broken = held = False

    def __init__(self) -> None:
        super().__init__()
        self.deleted, self.go_on = threading.Event(), threading.Event()

    def delete_prompts(self, tenant: str, request_id: str | None = None) -> int:
        count = super().delete_prompts(tenant, request_id)
        if self.held:
            self.deleted.set()
            assert self.go_on.wait(120)
        return count

    def add_prompts(self, entries: Any) -> None:
        if self.broken:
            raise StoreError("The disk is full.")
        super().add_prompts(entries)


class House:
    def __init__(self, master: MasterKey | None = MASTER, **bounds: int) -> None:
        self.store = Store()
        self.now = 100 * DAY
        self.switched: list[frozenset[str]] = []
        self.vault = Vault(self.store, Masters(master), lambda: self.now)
        self.prompts = Prompts(self.store, self.vault, lambda: self.now, self.switched.append, **bounds)
        self.prompts.begin()

    def hear(self, name: str = "r1", tenant: str = "a", answered: bytes | None = None, **more: Any) -> None:
        head = PromptHead(tenant, self.now, name, "app", "m", "chat", 0)
        raw = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nMARK" if answered is None else answered
        self.prompts.hear(Spoken(head, ASKED, raw, **({"cut": False, "gone": False} | more)))

    async def names(self, tenant: str = "a") -> list[str]:
        return [head.request_id for head in await self.prompts.heads(tenant, None, 100)]


def housed(test: Callable[[House], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(House())

    run(main)


def test_what_a_tenant_keeps_is_its_own_and_encrypted() -> None:
    async def test(house: House) -> None:
        house.hear("before")
        await house.prompts.switch_on("a", 7 * DAY, "account:ann")
        house.hear("r1")
        house.hear("r2", "b")
        assert await house.names() == ["r1"]
        assert await house.names("b") == []
        found = await house.prompts.show("a", "r1")
        assert found is not None
        head, text = found
        assert (head.status, head.app, text.asked, text.answered, text.cut) == (200, "app", ASKED, b"MARK", False)
        (kept,) = house.store._prompts.values()
        assert kept.head.size == len(kept.sealed) == await house.prompts.kept_bytes("a") > len(ASKED)
        assert b"MARK" not in kept.sealed
        assert await house.prompts.show("a", "r2") is None
        assert await house.prompts.show("b", "r1") is None

    housed(test)


def test_a_log_is_on_from_its_switch_to_the_next_also_after_a_restart() -> None:
    async def test(house: House) -> None:
        prompts = house.prompts
        await prompts.switch_on("a", 7 * DAY, "account:ann")
        house.now += DAY
        await prompts.switch_on("b", DAY, "account:bo")
        changed = await prompts.switch_on("a", 8 * DAY, "account:cy")
        assert (changed.since_ns, changed.keep_ns, changed.switched_by) == (100 * DAY, 8 * DAY, "account:cy")
        again = Prompts(house.store, house.vault, lambda: house.now, house.switched.append)
        again.begin()
        assert again.log_of("a") == prompts.log_of("a") == changed
        house.hear("r1")
        await prompts.switch_off("a")
        house.hear("r2")
        await prompts.switch_off("a")
        assert prompts.log_of("a") is None
        assert await house.names() == ["r1"]
        a, b, none = frozenset("a"), frozenset("b"), frozenset[str]()
        assert house.switched == [none, a, a | b, a | b, a | b, b]

    housed(test)


@pytest.mark.parametrize(
    ("answered", "more", "status", "text"),
    [
        (b"HTTP/1.1 429 Error\r\ncontent-length: 2\r\n\r\nno", {}, 429, b"no"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nMAR\r\n1\r\nK\r\n0\r\n\r\n", {}, 200, b"MARK"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nMAR\r\n", {"gone": True}, 499, b"MAR"),
        (b"HTTP/1.1 200 OK\r\ncontent-len", {"cut": True}, 499, b""),
        (b"", {"gone": True}, 499, b""),
    ],
    ids=["an error", "chunks", "the client left", "cut in the head", "nothing was sent"],
)
def test_an_answer_is_kept_as_far_as_it_went(answered: bytes, more: dict[str, Any], status: int, text: bytes) -> None:
    async def test(house: House) -> None:
        await house.prompts.switch_on("a", DAY, "account:ann")
        house.hear("r1", answered=answered, **more)
        found = await house.prompts.show("a", "r1")
        assert found is not None
        assert (found[0].status, found[1].answered, found[1].cut) == (status, text, more.get("cut", False))

    housed(test)


def test_a_stream_is_kept_as_it_would_be_in_one_piece() -> None:
    async def test(house: House) -> None:
        await house.prompts.switch_on("a", DAY, "account:ann")
        events = b"".join(
            b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % piece
            for piece in (b"MA", b"RK")
        )
        body = events + b"data: [DONE]\n\n"
        house.hear("r1", answered=b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        found = await house.prompts.show("a", "r1")
        assert found is not None
        answer = msgspec.json.decode(found[1].answered)
        assert answer["choices"][0]["message"]["content"] == "MARK"

    housed(test)


def test_without_a_master_key_no_log_can_be_switched_on() -> None:
    async def main() -> None:
        house = House(None)
        with pytest.raises(SecretsError, match=r"there is no master key; have the operator set secrets\.master_key"):
            await house.prompts.switch_on("a", DAY, "account:ann")
        assert house.prompts.log_of("a") is None

    run(main)


def test_what_waits_is_bounded_and_what_is_lost_is_counted() -> None:
    async def main() -> None:
        house = House(pending_bytes_max=300)
        await house.prompts.switch_on("a", DAY, "account:ann")
        for number in range(10):
            house.hear(f"r{number}")
        assert house.prompts.lost == {"a": 8}
        assert await house.names() == ["r1", "r0"]
        house.hear("r9")
        assert await house.names() == ["r9", "r1", "r0"]

    run(main)


def test_a_tenant_whose_log_waits_leaves_room_for_the_others() -> None:
    async def main() -> None:
        house = House(pending_bytes_max=600)
        for tenant in "ab":
            await house.prompts.switch_on(tenant, DAY, "account:ann")
        for number in range(100):
            house.hear(f"r{number}", "a")
        kept = 100 - house.prompts.lost["a"]
        assert kept >= 2
        house.hear("r1", "b")
        assert house.prompts.lost["b"] == 0
        assert await house.names("b") == ["r1"]
        assert len(await house.names("a")) == kept
        for number in range(100, 200):  # what was written is free again
            house.hear(f"r{number}", "a")
        assert len(await house.names("a")) == 2 * kept

    run(main)


def test_what_cannot_be_sealed_is_lost_and_holds_up_nobody_else() -> None:
    async def test(house: House) -> None:
        for tenant in "ab":
            await house.prompts.switch_on(tenant, DAY, "account:ann")
        wrapped = MasterKey(b"2" * 32).wrap("a", b"k" * 32, 1)  # by a master key that is not at hand
        house.store.add_data_key(wrapped)
        for number in range(3):
            house.hear(f"r{number}", "a")
            house.hear(f"r{number}", "b")
        assert await house.names("b") == ["r2", "r1", "r0"]
        assert await house.names("a") == []
        assert house.prompts.lost == {"a": 3}
        assert house.prompts.trouble is not None
        assert "the data key of tenant a" in house.prompts.trouble
        house.hear("r3", "b")
        assert await house.names("b") == ["r3", "r2", "r1", "r0"]
        assert house.prompts.trouble is None

    housed(test)


def test_what_cannot_be_written_waits_until_it_can() -> None:
    async def test(house: House) -> None:
        await house.prompts.switch_on("a", DAY, "account:ann")
        house.store.broken = True
        house.hear("r1")
        await house.prompts.write()
        assert house.prompts.trouble == "Prompt logs cannot be written: The disk is full."
        house.store.broken = False
        house.hear("r2")
        assert sorted(await house.names()) == ["r1", "r2"]
        assert house.prompts.trouble is None

    housed(test)


def test_what_is_old_or_too_much_goes() -> None:
    async def main() -> None:
        house = House(tenant_bytes_max=300)
        await house.prompts.switch_on("a", 7 * DAY, "account:ann")
        for number in range(6):
            house.hear(f"r{number}")
            house.now += DAY
            await house.prompts.write()
        size = next(iter(house.store._prompts.values())).head.size
        await house.prompts.trim()
        assert await house.names() == [f"r{number}" for number in (5, 4, 3, 2)][: 300 // size]
        house.now += 7 * DAY
        await house.prompts.trim()
        assert await house.names() == []

    run(main)


def test_a_tenant_deletes_one_entry_or_all_with_their_key() -> None:
    async def test(house: House) -> None:
        prompts = house.prompts
        for tenant in "ab":
            await prompts.switch_on(tenant, DAY, "account:ann")
            for name in ("r1", "r2", "r3"):
                house.hear(name, tenant)
        assert await prompts.delete("a", "r2") == 1  # what was just heard is among them
        assert await prompts.delete("a", "r2") == 0
        before = house.store._prompts["a", house.now, "r1"]
        assert await prompts.delete("a") == 2
        assert [key.tenant for key in house.store.data_keys()] == ["b"]
        house.store.add_prompts([SealedPrompt(before.head, before.sealed)])  # as a backup has it
        with pytest.raises(SecretsError, match="deleted"):
            await prompts.show("a", "r1")
        assert sorted(await house.names("b")) == ["r1", "r2", "r3"]
        house.hear("r4")
        assert (await prompts.show("a", "r4")) is not None

    housed(test)


def test_what_is_written_while_all_is_deleted_waits_for_its_new_key() -> None:
    """The data key is deleted after the entries: what came in between would have been sealed with it, and lost."""

    async def test(house: House) -> None:
        await house.prompts.switch_on("a", DAY, "account:ann")
        house.hear("r1")
        await house.prompts.write()
        house.store.held = True
        deleting = asyncio.create_task(house.prompts.delete("a"))
        assert await asyncio.to_thread(house.store.deleted.wait, 120)
        house.hear("r2")
        writing = asyncio.create_task(house.prompts.write())
        for _ in range(100):
            await asyncio.sleep(0)
        house.store.go_on.set()
        assert await deleting == 1
        await writing
        assert await house.names() == ["r2"]
        assert await house.prompts.show("a", "r2") is not None

    housed(test)


def test_an_entry_in_anothers_place_does_not_open() -> None:
    async def test(house: House) -> None:
        for tenant in "ab":
            await house.prompts.switch_on(tenant, DAY, "account:ann")
            house.hear("r1", tenant)
        house.hear("r2")
        await house.prompts.write()
        moved = {name: house.store._prompts["a", house.now, name] for name in ("r1", "r2")}
        for place, entry in ((("b", "r1"), moved["r1"]), (("a", "r1"), moved["r2"])):
            tenant, name = place
            head = msgspec.structs.replace(entry.head, tenant=tenant, request_id=name)
            house.store._prompts[tenant, house.now, name] = SealedPrompt(head, entry.sealed)
            with pytest.raises(SecretsError, match="has been changed"):
                await house.prompts.show(tenant, name)

    housed(test)
