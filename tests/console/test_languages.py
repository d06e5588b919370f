"""Given the console's words, then every language has all of them, and no template speaks by itself."""

import re
import string
from importlib import resources

import pytest

from commonpool.console import languages
from commonpool.console.languages import MissingMessageError, Words

WORDS = languages.load()
TEMPLATES = sorted(
    (file.name, file.read_text("utf-8"))
    for file in (resources.files("commonpool.console") / "templates").iterdir()
    if file.name.endswith(".html")
)
# Names, units and marks that are the same in every language.
SAME = re.compile(r"commonpool|HOST|ssh -L 8081:127\.0\.0\.1:8081|http://127\.0\.0\.1:8081/|\b[a-z]\b|GPU|p50|p99|API")


def test_every_language_has_the_same_messages() -> None:
    keys = {language: set(words.messages) for language, words in WORDS.items()}
    for language, own in keys.items():
        assert own == keys[languages.USUAL], f"{language} differs"


@pytest.mark.parametrize("language", sorted(set(languages.LANGUAGES) - {languages.USUAL}))
def test_messages_take_the_same_values(language: str) -> None:
    for key, message in WORDS[languages.USUAL].messages.items():
        assert _values(WORDS[language].messages[key]) == _values(message), key


def _values(message: object) -> set[str]:
    texts = [message] if isinstance(message, str) else list(message.values())  # type: ignore[attr-defined]
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize(("name", "source"), TEMPLATES, ids=[name for name, _ in TEMPLATES])
def test_no_template_speaks_by_itself(name: str, source: str) -> None:
    spoken = re.sub(r"\{#.*?#\}|<(pre|code)\b.*?</\1>", "", source, flags=re.DOTALL)
    # What people hear or read of attributes comes from the words, too.
    for attribute, value in re.findall(r'\b(title|aria-label|placeholder|alt)="([^"]*)"', spoken):
        rest = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", value)
        assert not re.search(r"\w\w", SAME.sub("", rest)), f"{name}: {attribute}={value!r}"
    for taken_out in (r"\{%.*?%\}", r"\{\{.*?\}\}", r"<[^>]*>"):
        spoken = re.sub(taken_out, " ", spoken, flags=re.DOTALL)
    spoken = re.sub(r"&\w+;", " ", spoken)
    assert not re.findall(r"\w\w+", SAME.sub("", spoken)), name


@pytest.mark.parametrize(("name", "source"), TEMPLATES, ids=[name for name, _ in TEMPLATES])
def test_templates_name_messages_that_there_are(name: str, source: str) -> None:
    for key in re.findall(r"\bt\('([\w.]+)'[,)]", source):
        assert WORDS[languages.USUAL].has(key), f"{name}: {key}"


@pytest.mark.parametrize(("name", "source"), TEMPLATES, ids=[name for name, _ in TEMPLATES])
def test_templates_have_no_script_and_no_style_of_their_own(name: str, source: str) -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:|\|\s*safe\b", source), name


def test_messages_are_filled_in_and_counted() -> None:
    words = Words("en", {"a.b": "{x} of {y}", "a.c": {"one": "{count} job", "other": "{count} jobs"}, "s.ok": "well"})
    assert words("a.b", x=1, y=2) == "1 of 2"
    assert (words("a.c", count=1), words("a.c", count=2)) == ("1 job", "2 jobs")
    assert (words.of("s", "ok"), words.of("s", "not_known")) == ("well", "not known")
    with pytest.raises(MissingMessageError):
        words("a.d")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("de-DE,de;q=0.9", "en"),
        ("en;q=0.1, zh;q=0.2", "zh"),
        ("zh;q=x, en", "en"),
        (",;,=", "en"),
    ],
)
def test_the_browser_says_which_language_it_likes(header: str, language: str) -> None:
    assert languages.preferred(header) == language
