"""What a configuration allows to a request."""

from typing import Any

import msgspec
import pytest

from commonpool.config.structs import EmbeddedEngine
from commonpool.gateway import wire
from commonpool.gateway.errors import ApiError
from commonpool.gateway.identity import Principal
from commonpool.gateway.rules import Rules
from tests.gateway.fakes import config

WHO = Principal("k1", "support", "helpdesk", None, None, "data")
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
TEXT = {"type": "text", "text": "hello"}


def ask(model: str, *content: Any) -> wire.Ask:
    messages = [{"role": "system", "content": "["}, {"role": "user", "content": list(content)}]
    return wire.read("chat", msgspec.json.encode({"model": model, "messages": messages}))


def rules() -> Rules:
    """`tiny` is served by the embedded engine, `big` by one that is attached."""
    configured = config()
    tiny = msgspec.structs.replace(configured.models["tiny"], engine=EmbeddedEngine("m.gguf"))
    return Rules(msgspec.structs.replace(configured, models=configured.models | {"tiny": tiny}))


@pytest.mark.parametrize("part", [PICTURE, SOUND])
def test_a_model_that_takes_text_alone_is_not_asked_for_more(part: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        rules().request("r", WHO, ask("tiny", TEXT, part), 100)
    assert (refused.value.status, refused.value.param) == (400, "messages")
    assert str(part["type"]) in refused.value.message


def test_other_engines_decide_themselves() -> None:
    assert rules().request("r", WHO, ask("big", TEXT, PICTURE), 100)[0].model == "big"


def test_text_in_parts_is_text() -> None:
    assert rules().request("r", WHO, ask("tiny", TEXT, TEXT), 100)[0].model == "tiny"
