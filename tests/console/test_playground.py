"""Given a reader with a key, when they ask from the playground, then only the key of an app is passed on."""

import pytest

from tests.api.fakes import FakeOperations
from tests.console.visitor import OWN_PAGE, visiting

FIELDS = {"key": "cp_a", "prompt": "Hello", "model": "echo", "max_tokens": "5"}


def send(product: FakeOperations, **fields: str) -> tuple[int, str]:
    with visiting(product) as local:
        answer = local.post("/playground", data={**FIELDS, **fields}, headers=OWN_PAGE)
        return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"key": ""}, 400, "a key and a prompt"),
        ({"prompt": " "}, 400, "a key and a prompt"),
        ({"max_tokens": "0"}, 400, "from 1 to 4096"),
        ({"max_tokens": "9999"}, 400, "from 1 to 4096"),
        ({"max_tokens": "²"}, 400, "from 1 to 4096"),
        ({"prompt": "x" * 100_001}, 400, "at most 100000"),
        ({"key": "cp_unknown"}, 401, "key"),
        ({"key": "cp_admin"}, 403, "not the key of an app"),
    ],
)
def test_what_cannot_be_passed_on_is_said(fields: dict[str, str], status: int, said: str) -> None:
    found = send(FakeOperations(), **fields)
    assert found[0] == status
    assert said in found[1]


def test_a_gateway_that_is_not_there_is_said_and_the_key_is_not() -> None:
    status, said = send(FakeOperations())  # whose status names no gateway
    assert status == 502
    assert "cannot be reached" in said
    assert "cp_a" not in said


def test_a_page_of_another_host_sends_nothing() -> None:
    with visiting(FakeOperations()) as local:
        answer = local.post("/playground", data=FIELDS, headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403
