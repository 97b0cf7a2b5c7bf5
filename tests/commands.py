"""The shell commands that a Markdown file shows, so that a test can run them and say that each of them was run."""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = re.compile(r"^[ ]*```bash[^\n]*\n(.*?)^[ ]*```[ ]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def commands(path: Path) -> list[str]:
    """Return the command lines of all bash blocks of a file, in order.

    Lines that end in a backslash are joined with the next one, comments and empty lines are dropped, and any run of
    blanks outside of quotes is one blank.
    """
    return [command for found in by_section(path).values() for command in found]


def by_section(path: Path) -> dict[str, list[str]]:
    """Return the commands below each heading of a file that has any; "" is what stands before the first one."""
    text = path.read_text(encoding="utf-8")
    outside = BLOCK.sub(lambda block: re.sub(r"[^\n]", " ", block.group()), text)  # a comment is no heading
    headings = [(0, ""), *((found.start(), found.group(1)) for found in HEADING.finditer(outside))]
    sections: dict[str, list[str]] = {}
    for block in BLOCK.finditer(text):
        title = [name for start, name in headings if start <= block.start()][-1]
        sections.setdefault(title, []).extend(_lines(block.group(1)))
    return sections


def not_covered(path: Path, executed: list[str]) -> list[str]:
    """Return the commands of a file that are not among those that were executed."""
    done = {line for command in executed for line in _lines(command)}
    return [command for command in commands(path) if command not in done]


def _lines(block: str) -> list[str]:
    joined = block.replace("\\\n", " ").splitlines()
    return [command for line in joined if (command := _tidy(line))]


def _tidy(line: str) -> str:
    """Return a line without its comment and with single blanks, what stands in quotes left as it is."""
    parts = re.findall(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\s+#.*$|^#.*$|\s+|[^\s'\"]+|['\"]", line)
    kept = [" " if part.isspace() else part for part in parts if not part.lstrip().startswith("#")]
    return "".join(kept).strip()
