"""Given the words of pages, then every language has all of them, and no template speaks by itself."""

import re
import string
from importlib import resources

import pytest

from commonpool.access.permissions import Permission
from commonpool.api import languages
from commonpool.api.config import NeedsRestartError
from commonpool.api.languages import LANGUAGES, USUAL, MissingMessageError, Words
from commonpool.api.operations import OperationError
from commonpool.app.billing import UnpricedError
from commonpool.console.asking import CODES
from commonpool.console.languages import load
from commonpool.core.alerts import CONDITIONS
from commonpool.core.english import SENTENCES
from commonpool.core.said import names

WORDS = load()
OTHERS = sorted(set(LANGUAGES) - {USUAL})
LOGIN = resources.files("commonpool.api") / "pages" / "login.html"
TEMPLATES = sorted(
    (file.name, file.read_text("utf-8"))
    for file in [*(resources.files("commonpool.console") / "templates").iterdir(), LOGIN]
    if file.name.endswith(".html")
)
SAID = "said."  # what the API says in English itself, so that only the other languages have it
# Where a term stands alone.
TERMS = {
    "overview.tenant": "tenant",
    "overview.quota": "quota",
    "overview.guaranteed": "guaranteed",
    "overview.lent": "lent",
    "overview.borrowed": "borrowed",
    "overview.app": "app",
    "overview.model": "model",
    "overview.tier": "tier",
    "bills.by.group": "group",
    "bills.pool": "pool",
    "decision.loan": "loan",
    "decision.quota": "quota",
    "devices.device": "device",
    "devices.job": "job",
    "devices.replica": "replica",
    "isolation.guaranteed": "guaranteed",
    "jobs.job": "job",
    "loans.borrower": "borrower",
    "loans.lender": "lender",
    "loans.title": "loan",
    "models.pool": "pool",
    "platform.pool": "pool",
    "request.borrower": "borrower",
    "request.lender": "lender",
    "rule.guaranteed": "guaranteed",
    "tenant.borrows": "borrowed",
    "tenant.lends": "lent",
    "tenant.priority": "priority",
    "tenant.title": "tenant",
}
# Other words for the same terms.
NOT_SO = {"zh": ("保底", "借贷", "贷款", "出借所得", "作业", "令牌", "token", "资源组")}
# Names, units and marks that are the same in every language.
SAME = re.compile(r"commonpool|HOST|ssh -L|http://127\.0\.0\.1:|\b[a-z]\b|GPU|p50|p99|API")


def own(words: Words) -> set[str]:
    """The keys of what the pages say by themselves."""
    return {key for key in words.messages if not key.startswith(SAID)}


def codes(kind: type[OperationError] = OperationError) -> set[str]:
    """Of every refusal that there is."""
    assert {NeedsRestartError.code, UnpricedError.code}  # of modules that nothing else here imports
    return {kind.code, *(code for each in kind.__subclasses__() for code in codes(each))}


def test_every_language_has_the_same_messages() -> None:
    assert own(WORDS[USUAL]) == set(WORDS[USUAL].messages)
    for language in OTHERS:
        assert own(WORDS[language]) == own(WORDS[USUAL]), f"{language} differs"


@pytest.mark.parametrize("language", OTHERS)
def test_messages_take_the_same_values(language: str) -> None:
    for key, message in WORDS[USUAL].messages.items():
        assert _values(WORDS[language].messages[key]) == _values(message), key


@pytest.mark.parametrize("language", OTHERS)
def test_all_that_the_api_can_say_is_said_with_the_same_values(language: str) -> None:
    said = {key.removeprefix(SAID): text for key, text in WORDS[language].messages.items() if key.startswith(SAID)}
    wanted = {name: names(sentence) for name, sentence in SENTENCES.items()}
    wanted |= {f"{what}.{name}": frozenset() for what in ("meaning", "remedy") for name in CONDITIONS}
    wanted |= {f"permission.{each}": frozenset() for each in Permission}
    wanted |= {f"error.{code}": frozenset() for code in {*codes(), *CODES.values(), "invalid_config"}}
    assert said.keys() == wanted.keys()
    for name, values in wanted.items():
        assert _values(said[name]) == values, name


def bare(message: object) -> str:
    """A message without what it takes, code, keys of the configuration, names in capitals and figures."""
    texts = [message] if isinstance(message, str) else list(message.values())  # type: ignore[attr-defined]
    return re.sub(
        r"\{[^}]*\}|`[^`]*`|\w+[._]\w[\w.]*|\b[A-Z0-9]\w*|\b(?:headroom|reserved|https|alerts|default|batch)\b",
        "",
        " ".join(texts),
    )


@pytest.mark.parametrize("language", OTHERS)
def test_nothing_is_left_in_english(language: str) -> None:
    for key, message in WORDS[language].messages.items():
        assert not re.search(r"[a-z]{3,}", bare(message)), f"{key}: {message}"


@pytest.mark.parametrize("language", OTHERS)
def test_a_term_has_one_word(language: str) -> None:
    """The vocabulary is that of DESIGN.md, section 1; `glossary` has each term's word, and those that are not it."""
    glossary = {key: text for key, text in WORDS[language].messages.items() if key.startswith("glossary.")}
    for key, term in TERMS.items():
        assert WORDS[language].messages[key] == glossary[f"glossary.{term}"], key
    for key, message in WORDS[language].messages.items():
        assert not any(word in bare(message) for word in NOT_SO[language]), f"{key}: {message}"


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
        assert WORDS[USUAL].has(key), f"{name}: {key}"


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
