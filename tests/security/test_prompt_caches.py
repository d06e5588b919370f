"""Two tenants with the same prompt on the real embedded engine: each finds what it sent itself, and nothing else.

What is asserted is counts: the tokens that the answer says were in the cache, and those that the engine says it read.
How long it took is in docs/results/boundaries.md (`make bench-boundaries`).
"""

import asyncio
import random
from pathlib import Path

from tests.engines.running import asked, run, total, until_deferred
from tests.gateway.fakes import post, until
from tests.security.ranks import p_value
from tests.security.served import COMPLETIONS, Served, key, served

DOCUMENT = "Clause {n}: the tenant of house {n} keeps {n} lamps lit on every floor until the clock has struck {n}."
STRICT = 0.001


def document(number: int) -> str:
    """A text of some thirty tokens whose first ones differ from those of any other number."""
    return f"{number} is the number. " + DOCUMENT.format(n=number)


def test_a_tenant_finds_its_own_prompt_and_another_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, ("a", "b"), slots=2) as here:
            prompt = document(7)
            size, cached, evaluated = await here.read("a", prompt)
            assert (cached, evaluated) == (0, size)
            # Its own: all but the last token, which is always read. Another's: nothing.
            assert await here.read("a", prompt) == (size, size - 1, 1)
            assert await here.read("b", prompt) == (size, 0, size)
            assert await here.read("b", prompt) == (size, size - 1, 1)
            assert await here.read("a", prompt) == (size, size - 1, 1)
            # It is in the records that bills are made of.
            counts = [(record.tenant, record.tokens_in, record.tokens_cached) for record in here.records]
            assert counts == [(tenant, size, 0 if n in (0, 2) else size - 1) for n, tenant in enumerate("aabba")]

    run(main)


def test_a_slot_that_changes_hands_is_read_anew_also_when_it_comes_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, ("a", "b"), slots=1) as here:
            prompt = document(7)
            size, _, _ = await here.read("a", prompt)
            assert await here.read("b", prompt) == (size, 0, size)
            assert await here.read("a", prompt) == (size, 0, size)
            assert await here.read("a", prompt) == (size, size - 1, 1)

    run(main)


def test_embeddings_and_several_sequences_neither_find_nor_leave_anything(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, ("a", "b"), slots=2) as here:
            prompt = document(7)
            size, _, _ = await here.read("a", prompt)
            for tenant in ("a", "b"):
                before = await total(here.handle, "prompt_tokens")
                await here.ask(tenant, {"input": prompt}, "/v1/embeddings")
                assert await total(here.handle, "prompt_tokens") == before + size
            # The engine put the embedding where it liked: into a slot of somebody's.
            for tenant in ("a", "b"):
                assert await here.read(tenant, prompt) == (size, 0, size)
            assert await here.read("b", prompt, n=2) == (size, 0, size)
            assert await here.read("a", prompt) == (size, 0, size)
            assert await here.read("a", prompt) == (size, size - 1, 1)

    run(main)


def test_a_client_that_leaves_before_the_engine_has_its_prompt_leaves_nothing_to_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, ("a", "b"), slots=1) as here:
            prompt = document(7)
            body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True, "id_slot": 0}
            async with asked(here.handle, COMPLETIONS, body) as blocker, here.client() as client:
                await blocker.readuntil(b"data: ")
                client.send(post({"model": "tiny", "prompt": prompt, "max_tokens": 1}, COMPLETIONS, key=key("a")))
                await until(lambda: here.running() == 1)
                await until_deferred(here.handle)
                client.abort()
                await asyncio.sleep(0.1)
            # The engine closes what was left; not before has its slot been given to anybody else.
            assert (await here.read("b", prompt))[1] == 0
            await until(lambda: here.doubts() == 0)
            await here.read("b", prompt)
            size, cached, _ = await here.read("b", prompt)
            assert cached == size - 1

    run(main)


def test_none_of_many_tenants_at_once_finds_what_others_send_whoever_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        tenants = [f"t{n}" for n in range(8)]
        seeded = random.Random(7)
        async with served(tmp_path, tenants, slots=3) as here:
            prompt = document(7)

            async def leave(tenant: str) -> None:
                async with here.client() as client:
                    client.send(
                        post({"model": "tiny", "prompt": prompt, "max_tokens": 9}, COMPLETIONS, key=key(tenant))
                    )
                    for _ in range(seeded.randrange(30)):
                        await asyncio.sleep(0.01)
                    client.abort()

            async def first(tenant: str) -> int:
                body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
                answer = await here.ask(tenant, body)
                cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                return cached

            leaving, asking = tenants[:4], tenants[4:]
            work = [leave(tenant) for tenant in leaving * 2] + [first(tenant) for tenant in asking]
            seeded.shuffle(work)
            found = await asyncio.gather(*work)
            assert [each for each in found if each is not None] == [0] * len(asking)

    run(main)


def test_what_another_tenant_sent_reads_like_what_nobody_has_sent(tmp_path: Path) -> None:
    """A two-sample test on the tokens that the engine reads, in interleaved order; paired with one that must differ."""

    async def main() -> None:
        pairs = 7
        async with served(tmp_path, ("a", "b"), slots=2, context_tokens=256) as here:
            known, fresh, own = await samples(here, pairs)
            assert p_value(known, fresh) > STRICT
            assert p_value(own, fresh) < STRICT  # so it tells, where there is something to tell

    run(main)


async def samples(here: Served, pairs: int) -> tuple[list[int], list[int], list[int]]:
    """What the engine read of prompts that another tenant had sent, that nobody had, and that it had sent itself."""
    seeded = random.Random(7)
    known: list[int] = []
    fresh: list[int] = []
    own: list[int] = []
    for number in range(0, 2 * pairs, 2):
        await here.read("a", document(100 + number))
        order = [(100 + number, known), (101 + number, fresh)]
        seeded.shuffle(order)
        for which, sample in order:
            _, _, evaluated = await here.read("b", document(which))
            sample.append(evaluated)
        _, _, evaluated = await here.read("b", document(which))
        own.append(evaluated)
    return known, fresh, own
