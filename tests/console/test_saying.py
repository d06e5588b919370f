"""What the API has a name for is said in the reader's language; what it has none for stays English, and marked."""

import re

import pytest
from markupsafe import Markup

from commonpool.api.languages import USUAL
from commonpool.console.languages import load
from commonpool.console.saying import sentence
from commonpool.core.english import SENTENCES
from commonpool.core.said import Said, Value, clauses, names, say
from commonpool.core.story import loan

WORDS = load()
CHINESE = WORDS["zh"]


def test_english_is_the_apis_own() -> None:
    assert sentence(WORDS[USUAL], say("loan.due", lender="a", borrower="b")) is None
    assert sentence(CHINESE, None) is None
    assert sentence(CHINESE, say("of.a_newer_version")) is None
    assert sentence(CHINESE, say("ended.for", reason=say("of.a_newer_version"))) is None


def test_figures_have_their_units_and_lists_their_commas() -> None:
    said = clauses(
        say("job.starts", job="j", tenant="ops", milli_gpu=2500),
        say("job.borrows", loans=(loan("support", 1000), loan("", 500))),
        say("job.waited", wait_ns=90_000_000_000),
    )
    assert sentence(CHINESE, said) == (
        "ops 的任务 j 开始运行，使用 2.5 GPU，其中借入 support 的 1 GPU、无主部分的 0.5 GPU，此前等待了 90.00 s"  # noqa: RUF001 - Chinese
    )
    rate = say("finding.expensive", tenant="ops", times_tenths=12345)
    assert "1,234.5 倍" in str(sentence(CHINESE, rate))


def test_what_others_say_is_escaped_and_marked_as_english() -> None:
    said = sentence(CHINESE, say("model.lost", replica="r", model="<m>", detail="It `said` <b>no</b>."))
    assert isinstance(said, Markup)
    assert "&lt;m&gt;" in said
    assert '<span lang="en">It `said` &lt;b&gt;no&lt;/b&gt;.</span>' in said
    assert "<code>commonpool status</code>" in str(sentence(CHINESE, say("cause_advice.no_replica")))


@pytest.mark.parametrize("name", sorted(SENTENCES))
def test_every_sentence_is_chinese(name: str) -> None:
    values: dict[str, Value] = {
        each: 1500 if each.endswith(("_ns", "milli_gpu", "_tenths")) else "N" for each in names(SENTENCES[name])
    }
    said = str(sentence(CHINESE, Said(name, values)))
    bare = re.sub(r"<(code|span lang=\"en\")>.*?</(code|span)>|\w+[._]\w+|headroom|reserved", "", said)
    assert not re.search(r"[a-z]{3,}", bare)
