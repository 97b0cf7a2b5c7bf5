"""Tables, links, texts and whole documents in Markdown, as reports, notes and artifacts have them.

Names of data sets, columns and classes, paths and the words of errors are texts: whatever they hold, they stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"
"""Of the reports of comparisons and models."""

INLINE = re.compile(
    r"[\\`\[\]|~$]|^\*|\*(?!$)|(?<![^\W_])_|_(?![^\W_])|<(?=[\w/!?])|&(?=#?\w+;)|@|:(?=//)|(?<=www)\.", re.I
)
"""What begins markup, a tag, an entity or an address within a line."""

LEADING = re.compile(r"^(?=>|(?:#{1,6}|[+-])(?:\s|$)|[-=][-=\s]*$)|^(?P<digits>\d+)(?=[.)](?:\s|$))")
"""What makes a line a heading, a quotation, a rule or an entry of a list."""

IN_ADDRESS = re.compile(r"[\s()<>\[\]\\|`*~]")
"""What could end the address of a link."""


class Markdown(str):
    """Text that is Markdown already."""

    def __html__(self) -> Markdown:
        """Return itself, for Jinja2 to insert it as it is."""
        return self


def plain(value: object) -> Markdown:
    """Return a value as Markdown that shows it as it is, in one line."""
    if hasattr(value, "__html__"):
        return Markdown(value)
    line = INLINE.sub(r"\\\g<0>", " ".join(str(value).split()))
    return Markdown(LEADING.sub(lambda found: f"{found['digits'] or ''}\\", line))


def code(value: object) -> Markdown:
    """Return a value as code within a line."""
    line = " ".join(str(value).split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in line else ""
    return Markdown(f"{fence}{pad}{line}{pad}{fence}")


def markdown_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the lines of a table, one a row; a column that a row lacks is empty there."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (list(map(_cell, columns)), ["---"] * len(columns), *cells)]


def _cell(value: object) -> str:
    """Return a value as a cell holds it: a bar in it is no border, and a line break no new row."""
    lines = str(value).splitlines()
    shown = lines if isinstance(value, Markdown) else map(plain, lines)
    return re.sub(r"(?<!\\)((?:\\\\)*)\|", r"\1\|", "<br>".join(shown))


def link(name: object, place: str) -> Markdown:
    """Return a link."""
    address = IN_ADDRESS.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), place)
    return Markdown(f"[{plain(name)}]({address})")


def link_list(links: Mapping[str, str]) -> list[str]:
    """Return a list of places, addresses as links, paths as they are, and Markdown after its name."""
    return [
        f"- {link(name, place)}" if place.startswith("http") else f"- {plain(name)}: {_shown(place)}"
        for name, place in links.items()
    ]


def _shown(place: str) -> Markdown:
    return place if isinstance(place, Markdown) else code(place)


def inline_links(links: Mapping[str, str]) -> Markdown:
    """Return links in one line."""
    return Markdown(" · ".join(link(name, place) for name, place in links.items()))


def render(template: str, folder: Path = TEMPLATES, /, **values: object) -> str:
    """Return a document from a template, with no more than one blank line between paragraphs.

    Every value that the template shows is `plain`, unless it is Markdown.
    """
    text = _templates(folder).get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _templates(folder: Path) -> Environment:
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "table": lambda rows: Markdown("\n".join(markdown_table(rows))),
        "link_list": lambda links: Markdown("\n".join(link_list(links))),
        "inline_links": inline_links,
    }
    templates.filters |= {"markdown": Markdown, "paragraph": lambda text: Markdown(" ".join(text.split()))}
    return templates
