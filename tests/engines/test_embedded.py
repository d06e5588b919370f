"""The embedded engine itself, with the example model: what it serves, refuses, and lets go of."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from commonpool.backends import probe
from commonpool.backends.base import BackendError
from commonpool.backends.local import LocalBackend, LocalHandle
from tests.engines.running import TIMEOUT_NS, asked, busy_slots, engine, model, post, replica, run, total, until_busy

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
QUESTION = {"messages": [{"role": "user", "content": "Name a colour."}], "temperature": 0, "max_tokens": 12}
LONG = 1800  # tokens; half a minute and more of work
LONG_PROMPT = "hello " * 6000  # a dozen batches
PROMPT = "Once upon a time there was a slot that remembered."


def test_serves_chat_completions_and_embeddings_under_our_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path) as handle:
            status, chat = await post(handle, CHAT, QUESTION)
            assert (status, chat["model"]) == (200, "smollm2")
            assert chat["choices"][0]["message"]["content"].strip()
            assert chat["usage"]["completion_tokens"] <= 12

            status, text = await post(handle, COMPLETIONS, {"prompt": "Once upon", "max_tokens": 4})
            assert (status, text["usage"]["completion_tokens"]) == (200, 4)

            # Longer than a batch, which pooling over the last token allows.
            inputs = ["The cat sleeps.", "A kitten naps.", "Shares fell on Wall Street today.", "word " * 200]
            status, answer = await post(handle, "/v1/embeddings", {"input": inputs})
            cat, kitten, shares, _ = (item["embedding"] for item in answer["data"])
            assert status == 200
            assert _dot(cat, kitten) > _dot(cat, shares)

    run(main)


def test_what_a_slot_holds_is_used_by_a_request_that_asks_for_it_alone(tmp_path: Path) -> None:
    """What `gateway.caches` relies on: a slot is chosen by its number, and an embedding uses nothing."""

    async def main() -> None:
        async with engine(tmp_path, model(slots=2, context_tokens=512)) as handle:
            adapter = handle.target.adapter
            assert (adapter.slot_field, adapter.cache_field) == ("id_slot", "cache_prompt")
            size = await cached(handle, 0, uses=False, whole=True)
            assert await cached(handle, 0) == 0  # it says nothing
            assert await cached(handle, 0, uses=False) == 0
            assert await cached(handle, 1, uses=True) == 0
            assert await cached(handle, 0, uses=True) == size - 1
            before = await total(handle, "prompt_tokens")
            for _ in range(3):
                await post(handle, "/v1/embeddings", {"input": PROMPT, "cache_prompt": True, "id_slot": 0})
            assert await total(handle, "prompt_tokens") == before + 3 * size

    run(main)


async def cached(handle: LocalHandle, slot: int, *, uses: bool | None = None, whole: bool = False) -> int:
    """The tokens of PROMPT that a request finds in a slot; `whole`: those it has."""
    body = {"prompt": PROMPT, "max_tokens": 1, "id_slot": slot} | ({} if uses is None else {"cache_prompt": uses})
    _, answer = await post(handle, COMPLETIONS, body)
    tokens: int = answer["usage"]["prompt_tokens"]
    found: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens if whole else found


def test_only_its_parent_has_the_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            stranger = msgspec.structs.replace(handle.target, authorization=b"Bearer guess")
            answer = await probe.ask(stranger, "POST", CHAT, msgspec.json.encode(QUESTION), TIMEOUT_NS)
            assert answer.status == 401
            assert (await probe.health(stranger, TIMEOUT_NS))[0] is probe.Health.GOOD

    run(main)


def test_a_prompt_of_three_megabytes_is_an_error_with_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            status, answer = await post(handle, CHAT, {"messages": [{"role": "user", "content": "hello " * 500_000}]})
            assert status == 400
            assert "512" in answer["error"]["message"]

    run(main)


def test_a_client_that_leaves_a_stream_frees_its_slot(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path) as handle:
            body = {"prompt": "Once", "max_tokens": LONG, "ignore_eos": True, "stream": True}
            async with asked(handle, COMPLETIONS, body) as reader:
                await reader.readuntil(b"data: ")
                assert await busy_slots(handle) == 1
            await until_busy(handle, slots=0)
            assert await total(handle, "tokens_predicted") < LONG

    run(main)


def test_a_client_that_leaves_while_its_prompt_is_read_frees_its_slot(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=8192)) as handle:
            progress = handle.target.adapter.progress_field
            assert progress is not None
            body = {"prompt": LONG_PROMPT, "max_tokens": LONG, "ignore_eos": True, "stream": True, progress: True}
            async with asked(handle, COMPLETIONS, body) as reader:
                await reader.readuntil(b"prompt_progress")
                assert await busy_slots(handle) == 1
            await until_busy(handle, slots=0)
            assert await total(handle, "prompt_tokens") < LONG_PROMPT.count(" ")

    run(main)


def test_it_does_not_notice_a_client_that_leaves_an_answer_in_one_piece(tmp_path: Path) -> None:
    """The reason for `Adapter.frees_streams_only`; when this fails, the engine has become better than its adapter."""

    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            assert handle.target.adapter.frees_streams_only
            async with asked(handle, COMPLETIONS, {"prompt": "Once", "max_tokens": 400, "ignore_eos": True}):
                await until_busy(handle, slots=1)
            await until_busy(handle, slots=0)
            assert await total(handle, "tokens_predicted") == 400

    run(main)


def test_a_broken_file_is_one_sentence_and_its_log_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(b"GGUF and nothing more")
        with pytest.raises(BackendError, match=r"could not start: llama\.cpp cannot serve .*broken\.gguf") as caught:
            await LocalBackend(tmp_path / "engines").start(model(file=str(broken)), 0, replica())
        log = tmp_path / "engines" / "smollm2-0.log"
        assert str(log) in str(caught.value)
        assert "smollm2-0.1" in log.read_text()

    run(main)


def test_ctrl_c_is_for_the_parent_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=1, context_tokens=512)) as handle:
            assert handle.pid is not None
            assert os.getpgid(handle.pid) != os.getpgid(0)
            os.kill(handle.pid, signal.SIGINT)
            status, _ = await post(handle, COMPLETIONS, {"prompt": "Once", "max_tokens": 1})
            assert status == 200

    run(main)


def _dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
