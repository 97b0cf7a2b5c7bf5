"""Pages, messages and docstrings use the terms of the field, and pages have short sentences."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PLACES = (
    r"bandwidth|base kernel|class|code|column|data set|degree|feature|fold|\(data set"
    r"|landmark|learner|level|pair|regularization|repeat|row|run|target|trial"
)
FORBIDDEN = re.compile(
    rf"\b(?:besides?|anew|contestants?|whoever|nobody|somebody|surely|mended|flatters|praise|dear|for ever"
    rf"|as (?:it|they) comes?|chose nothing|may choose|(?:is|are|was|were) told|tells? apart|says? so"
    rf"|of either sign|one against one|set one against|(?:loses no|keeps its|costs) digits|at rounding|to the last bit"
    rf"|interior points|processor seconds|some (?:ten )?thousand|written whole or not|goes on from|comes? along"
    rf"|truth values|other texts|number(?:s|ing)? the rows|shares? of wrong|misclassified share|what it was"
    rf"|dates,? and gaps|gaps (?:that )?are filled|working folder|the rooms? of|of your own|by the clock|bounded memory"
    rf"|taken? for(?! granted)|letters of either size|with(?:out)? a word|for want of|makes? room|goes before all"
    rf"|who (?:takes part|wins|errs)|in one sentence|asks? (?:for|about)|(?:is|are|was|were) asked|asked (?:for|about)"
    rf"|weighed|stands? for|some \d|for people|taught|knows? no|lets? go|as it stands|sets? of OpenML|return it"
    rf"|tells? (?:how|which|classes|two|what|that|it)|of one's own|rows and more|of bounded sum"
    rf"|[Mm]achines? (?:inside|on many rows|without)|can be made again|what a table"
    rf"|(?:a [\w-]+|one [\w-]+(?: [\w-]+)?) an? (?:{PLACES}))\b",
    re.IGNORECASE,
)
"""Phrases of the project's own for which the field has a term."""

ON_PAGES = re.compile(
    r"(?<![\w.*/^-])\.\d|\b\w*(?:norm|regular|optim|standard|general|initial)is(?:e[ds]?|ing|ation)\b",
    re.I,
)
"""Decimals without a zero, and British spelling: in code these are names of parameters."""

LONGEST, MEAN = 40, 20
"""Most words of a sentence, and of the mean sentence of a page."""

ALLOWED: dict[str, int] = {}
"""Offenses of each page and package that are still to be mended."""


def phrases(text: str) -> int:
    return len(FORBIDDEN.findall(" ".join(text.split())))


def prose(page: str) -> str:
    """A page without code, comments and the targets of its links."""
    page = re.sub(r"```.*?```|<!--.*?-->|^    .*?$", "", page, flags=re.S | re.M)
    page = re.sub(r"`[^`]*`", "Code", page)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)


def lengths(text: str) -> list[int]:
    """Words of each sentence; headings and tables have none."""
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=#)", text):
        if not block.lstrip().startswith(("|", "#", ":")):
            sentences = re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"*(])", block.strip())
            found += [
                len(re.findall(r"[A-Za-z0-9][\w'.,/-]*", one)) for one in sentences
            ]
    return [length for length in found if length > 2]


def offenses() -> dict[str, int]:
    found = {}
    pages = [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/*.md")),
        *sorted(ROOT.glob("docs/reference/*.md")),
    ]
    # Earlier versions are described in the words of their time
    pages.remove(ROOT / "docs" / "changes.md")
    for path in pages:
        text = prose(path.read_text(encoding="utf-8"))
        words = lengths(text)
        long = sum(length > LONGEST for length in words) + (
            sum(words) > MEAN * len(words)
        )
        found[str(path.relative_to(ROOT))] = (
            phrases(text) + len(ON_PAGES.findall(text)) + long
        )
    for package in ("kernels", "tasks", "flows", "conf", "learnkernels"):
        trees = [
            ast.parse(path.read_text(encoding="utf-8"))
            for path in (ROOT / package).rglob("*.py")
        ]
        constants = [
            node.value
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
        ]
        found[package] = sum(
            phrases(value) for value in constants if isinstance(value, str)
        )
    return {name: number for name, number in found.items() if number}


def test_pages_messages_and_docstrings_use_the_terms_of_the_field():
    assert offenses() == ALLOWED
