"""Write Markdown of reports, notes and artifacts, with escaped values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"

INLINE = re.compile(
    r"[\\`\[\]|~$]|^\*|\*(?!$)|(?<![^\W_])_|_(?![^\W_])|<(?=[\w/!?])|&(?=#?\w+;)|@|:(?=//)|(?<=www)\.",
    re.I,
)
"""Start of markup, a tag, an entity or an address within a line."""

LEADING = re.compile(
    r"^(?=>|(?:#{1,6}|[+-])(?:\s|$)|[-=][-=\s]*$)|^(?P<digits>\d+)(?=[.)](?:\s|$))"
)


CLOSING = re.compile(r"(?<= )(?=#+$)")
"""End of a heading."""


class Markdown(str):
    """Text that is already Markdown and is not escaped."""

    def __html__(self) -> Markdown:
        """Return this text, so that Jinja2 does not escape it."""
        return self


def plain(value: object) -> Markdown:
    """Return a value as one line of text with Markdown escaped."""
    if hasattr(value, "__html__"):
        return Markdown(value)
    line = " ".join(str(value).split())
    line = INLINE.sub(r"\\\g<0>", line)
    line = CLOSING.sub(r"\\", line)
    return Markdown(LEADING.sub(lambda match: f"{match['digits'] or ''}\\", line))


def code(value: object) -> Markdown:
    line = " ".join(str(value).split())
    if "`" not in line:
        return Markdown(f"`{line}`")
    longest = max(map(len, re.findall("`+", line)))
    fence = "`" * (longest + 1)
    return Markdown(f"{fence} {line} {fence}")


def markdown_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [map(_cell, columns), ["---"] * len(columns)]
    for row in rows:
        lines.append([_cell(row.get(column, "")) for column in columns])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _cell(value: object) -> str:
    lines = str(value).splitlines()
    if not isinstance(value, Markdown):
        lines = [plain(line) for line in lines]
    unescaped_bar = r"(?<!\\)((?:\\\\)*)\|"
    return re.sub(unescaped_bar, r"\1\|", "<br>".join(lines))


def link(name: object, place: str) -> Markdown:
    address = re.sub(r"[\s()<>\[\]\\|`*~]", _percent_encoded, place)
    return Markdown(f"[{plain(name)}]({address})")


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def link_list(links: Mapping[str, str]) -> list[str]:
    """Return Markdown list items for links; paths appear as code."""
    entries = []
    for name, place in links.items():
        if place.startswith("http"):
            entries.append(f"- {link(name, place)}")
        elif isinstance(place, Markdown):
            entries.append(f"- {plain(name)}: {place}")
        else:
            entries.append(f"- {plain(name)}: {code(place)}")
    return entries


def inline_links(links: Mapping[str, str]) -> Markdown:
    return Markdown(" · ".join(link(name, place) for name, place in links.items()))


def render(template: str, folder: Path = TEMPLATES, /, **values: object) -> str:
    """Render a Markdown template, with values escaped by `plain`."""
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
    templates.filters |= {
        "code": code,
        "markdown": Markdown,
        "paragraph": lambda text: Markdown(" ".join(text.split())),
    }
    return templates
