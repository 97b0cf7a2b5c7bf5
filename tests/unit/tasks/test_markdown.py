"""Names stay texts in Markdown, whatever they hold: rendered, they are what they were."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from learnkernels.conf.loading import load_config
from learnkernels.tasks.evidence.markdown import Markdown, code, code_block, link, markdown_table, plain
from learnkernels.tasks.evidence.report import markdown_report
from learnkernels.tasks.evidence.tables import summarise
from tests.unit.tasks.test_report import folds
from tests.user import ROOT

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
WORDS = st.text(st.sampled_from("ab1 |`*_~[]()<>!#+-=.:/\\&;\"'@$\n\té{}"), min_size=1, max_size=30).filter(
    lambda words: bool(words.strip())
)
NASTY = (
    "iris [/raw]",
    "a|b",
    "a\\|b",
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "[x]: http://evil.example",
    "<img src=http://evil.example/x onerror=alert(1)>",
    "<http://evil.example>",
    "&lt;b&gt; &#60;",
    "# heading",
    "1. one",
    "12) twelve",
    "- - -",
    "> quoted",
    "`code` ``more``",
    "**bold** _it_ __b__ ~~gone~~",
    "two\n\n# lines",
    "| a | b |\n|---|---|",
    "```\nfence",
)


def words_of(markdown: str, kind: str = "text") -> str:
    """What a text says; fails where it holds anything else."""
    tokens = [token for token in RENDERER.parse(markdown) if token.type == "inline"]
    assert len(tokens) == 1
    assert {leaf.type for leaf in tokens[0].children or ()} <= {kind, "text"}
    return "".join(leaf.content for leaf in tokens[0].children or ())


def examples(test):  # type: ignore[no-untyped-def]
    for nasty in NASTY:
        test = example(nasty)(test)
    return test


@examples
@given(WORDS)
def test_a_text_is_shown_as_it_is_wherever_it_stands(words: str):
    shown = " ".join(words.split())
    for place in ("{}", "- {}", "# {}", "word {}", "**Bold**: {}"):
        rendered = words_of(place.format(plain(words)).replace("**Bold**", "Bold"))
        assert rendered.strip().endswith(shown)
    kinds = [token.type for token in RENDERER.parse(f"- {plain(words)}")]
    assert kinds[:3] == ["bullet_list_open", "list_item_open", "paragraph_open"]
    assert len(kinds) == 7


@examples
@given(WORDS)
def test_code_is_shown_as_it_is(words: str):
    shown = " ".join(words.split())
    assert words_of(f"x{code(words)}", "code_inline") == f"x{shown}"
    block = RENDERER.parse(str(code_block(words.replace("\t", " "), "yaml")))
    assert [token.type for token in block] == ["fence"]


@examples
@given(WORDS)
def test_a_table_keeps_its_cells(words: str):
    lines = markdown_table([{"name": words, words: "value", "last": "end"}])
    assert all("\n" not in line for line in lines)
    tokens = [token for token in RENDERER.parse("\n".join(lines)) if token.type == "inline"]
    assert len(tokens) == 6
    said = [
        "".join({"html_inline": "\n"}.get(leaf.type, leaf.content) for leaf in token.children or ()) for token in tokens
    ]
    kinds = {leaf.type for token in tokens for leaf in token.children or ()}
    assert kinds <= {"text", "html_inline"}  # <br> between lines
    assert {leaf.content for token in tokens for leaf in token.children or () if leaf.type == "html_inline"} <= {"<br>"}
    lined = "\n".join(" ".join(line.split()) for line in words.splitlines()).strip()
    assert [re.sub(r"[ ]*\n[ ]*", "\n", cell).strip() for cell in (said[1], said[3])] == [
        re.sub(r"[ ]*\n[ ]*", "\n", lined)
    ] * 2
    assert (said[4], said[5]) == ("value", "end")


@examples
@given(WORDS)
def test_a_link_leads_where_it_says(words: str):
    (opened, *said, closed) = RENDERER.parse(str(link(words, f"http://127.0.0.1/{words}")))[1].children or ()
    assert (opened.type, closed.type) == ("link_open", "link_close")
    assert str(opened.attrs["href"]).startswith("http://127.0.0.1/")
    assert "".join(leaf.content for leaf in said) == " ".join(words.split())


@pytest.mark.parametrize(
    "name", ["breast_cancer", "alignf *", "0.2000 ± 0.01", "-0.5", "95 %", "gaussian(2^-3)", "p < 0.01"]
)
def test_ordinary_names_and_numbers_are_written_as_they_are(name: str):
    assert plain(name) == name


def test_what_is_markdown_already_stays():
    assert markdown_table([{"a": Markdown("`b|c`"), "b": Markdown("[x](#y)")}])[2] == r"| `b\|c` | [x](#y) |"


@pytest.mark.parametrize("nasty", NASTY)
def test_a_report_holds_no_markup_of_a_data_set(nasty: str):
    table = folds({"unif": [0.3, 0.2, 0.4], "alignf": [0.2, 0.1, 0.2]}, nasty)
    config = load_config(ROOT / "conf/quickstart.yaml")
    report = markdown_report(config, table, summarise(table), {"results": "results/x"})
    plainly = folds({"unif": [0.3, 0.2, 0.4], "alignf": [0.2, 0.1, 0.2]}, "d")
    expected = markdown_report(config, plainly, summarise(plainly), {"results": "results/x"})

    def shape(markdown: str) -> list[str]:
        found = [leaf.type for token in RENDERER.parse(markdown) for leaf in (token, *(token.children or ()))]
        return [kind for kind in found if kind not in ("text", "softbreak", "html_inline")]

    assert shape(report) == shape(expected)
