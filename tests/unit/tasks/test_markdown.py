"""Names stay texts in Markdown, whatever they hold: rendered, they are what they were."""

import re

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from learnkernels.conf.loading import load_config
from learnkernels.tasks.reporting.markdown import (
    Markdown,
    code,
    link,
    markdown_table,
    plain,
)
from tests.unit.tasks.test_report import folds, rendered
from tests.user import ROOT

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LETTERS = st.sampled_from("ab1 |`*_~[]()<>!#+-=.:/\\&;\"'@$\n\té{}")
WORDS = st.text(LETTERS, min_size=1, max_size=30).filter(
    lambda words: bool(words.strip())
)
NASTY = (
    "iris [/raw]", "a|b", "a\\|b", "[x]: http://evil.example", "<http://evil.example>", "&lt;b&gt; &#60;",
    "![x](http://evil.example/x.png)", "[x](javascript:alert(1))", "<img src=http://evil.example/x onerror=alert(1)>",
    "# heading", "1. one", "12) twelve", "- - -", "> quoted", "`code` ``more``", "**bold** _it_ __b__ ~~gone~~",
    "two\n\n# lines", "C #", "1 ##", "| a | b |\n|---|---|", "```\nfence",
)  # fmt: skip


def words_of(markdown: str, kind: str = "text") -> str:
    """What a text says; fails where it holds anything else."""
    tokens = [token for token in RENDERER.parse(markdown) if token.type == "inline"]
    assert len(tokens) == 1
    assert {leaf.type for leaf in tokens[0].children or ()} <= {kind, "text"}
    return "".join(leaf.content for leaf in tokens[0].children or ())


def trimmed(lines: str) -> str:
    return re.sub(r"[ ]*\n[ ]*", "\n", lines.strip())


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
    assert (kinds[:3], len(kinds)) == (
        ["bullet_list_open", "list_item_open", "paragraph_open"],
        7,
    )


@examples
@given(WORDS)
def test_code_is_shown_as_it_is(words: str):
    shown = " ".join(words.split())
    assert words_of(f"x{code(words)}", "code_inline") == f"x{shown}"


@examples
@given(WORDS)
def test_a_table_keeps_its_cells(words: str):
    lines = markdown_table([{"name": words, words: "value", "last": "end"}])
    assert all("\n" not in line for line in lines)
    cells = [
        token.children or ()
        for token in RENDERER.parse("\n".join(lines))
        if token.type == "inline"
    ]
    assert len(cells) == 6
    leaves = {
        (leaf.type, leaf.content if leaf.type != "text" else "")
        for cell in cells
        for leaf in cell
    }
    assert leaves <= {("text", ""), ("html_inline", "<br>")}
    said = [
        "".join("\n" if leaf.type == "html_inline" else leaf.content for leaf in cell)
        for cell in cells
    ]
    shown = "\n".join(" ".join(line.split()) for line in words.splitlines())
    assert [trimmed(said[1]), trimmed(said[3])] == [trimmed(shown)] * 2
    assert (said[4], said[5]) == ("value", "end")


@examples
@given(WORDS)
def test_a_link_leads_where_it_says(words: str):
    (opened, *said, closed) = (
        RENDERER.parse(str(link(words, f"http://127.0.0.1/{words}")))[1].children or ()
    )
    assert (opened.type, closed.type) == ("link_open", "link_close")
    assert str(opened.attrs["href"]).startswith("http://127.0.0.1/")
    assert "".join(leaf.content for leaf in said) == " ".join(words.split())


def test_ordinary_names_and_what_is_markdown_already_stay_as_they_are():
    names = [
        "breast_cancer",
        "alignf *",
        "0.2000 ± 0.01",
        "-0.5",
        "95 %",
        "gaussian(2^-3)",
        "p < 0.01",
    ]
    assert [plain(name) for name in names] == names
    assert markdown_table([{"a": Markdown("`b|c`"), "b": Markdown("[x](#y)")}, {"b": "one\ntwo"}])[2:] == [
        r"| `b\|c` | [x](#y) |", "|  | one<br>two |",
    ]  # fmt: skip


def test_a_report_holds_no_markup_of_a_data_set():
    config = load_config(ROOT / "conf/quickstart.yaml")

    def shape(dataset: str) -> list[str]:
        table = folds({"unif": [0.3, 0.2, 0.4], "alignf": [0.2, 0.1, 0.2]}, dataset)
        report = RENDERER.parse(rendered(config, table, {"results": "results/x"}))
        found = [
            leaf.type for token in report for leaf in (token, *(token.children or ()))
        ]
        return [
            kind for kind in found if kind not in ("text", "softbreak", "html_inline")
        ]

    expected = shape("d")
    failures = [nasty for nasty in NASTY if shape(nasty) != expected]
    assert not failures
