"""What a Markdown file shows, so that a test can run it: shell commands, Python with its claims, and files."""

import ast
import re
from pathlib import Path

import numpy as np

BASH = re.compile(r"^[ ]*```bash[^\n]*\n(.*?)^[ ]*```[ ]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(
    r"^```(?:python|yaml)\n# (\S+\.(?:py|yaml))\n(.*?)^```", re.DOTALL | re.MULTILINE
)
CLAIM = re.compile(r"  # (\d+\.\d+|array\(.*\))$")
"""A comment that says what the line before it gives: a number with decimals, or an array of them."""


def commands(page: Path) -> list[str]:
    """Return the command lines of all bash blocks of a page, in order.

    Lines that end in a backslash are joined with the next one, comments and empty lines
    are dropped, and any run of blanks outside of quotes is one blank.
    """
    return [command for found in by_section(page).values() for command in found]


def by_section(page: Path) -> dict[str, list[str]]:
    """Return the commands below each heading of a page that has any; "" is what stands before the first one."""
    text = page.read_text(encoding="utf-8")
    # a comment is no heading
    outside = BASH.sub(lambda block: re.sub(r"[^\n]", " ", block.group()), text)
    headings = [
        (0, ""),
        *((found.start(), found.group(1)) for found in HEADING.finditer(outside)),
    ]
    sections: dict[str, list[str]] = {}
    for block in BASH.finditer(text):
        title = [name for start, name in headings if start <= block.start()][-1]
        sections.setdefault(title, []).extend(_lines(block.group(1)))
    return sections


def not_covered(page: Path, executed: list[str]) -> list[str]:
    """Return the commands of a page that are not among those that were executed."""
    done = {line for command in executed for line in _lines(command)}
    return [command for command in commands(page) if command not in done]


def _lines(block: str) -> list[str]:
    joined = block.replace("\\\n", " ").splitlines()
    return [command for line in joined if (command := _tidy(line))]


def _tidy(line: str) -> str:
    """Return a line without its comment and with single blanks, what stands in quotes left as it is."""
    parts = re.findall(
        r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\s+#.*$|^#.*$|\s+|[^\s'\"]+|['\"]", line
    )
    kept = [
        " " if part.isspace() else part
        for part in parts
        if not part.lstrip().startswith("#")
    ]
    return "".join(kept).strip()


def python_blocks(page: Path) -> list[str]:
    """Return the blocks of Python of a page but those that are files, whose first line is their name."""
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    return [block for block in blocks if not re.match(r"# \S+\.py\n", block)]


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows in full, by their names."""
    return dict(FILE.findall(page.read_text(encoding="utf-8")))


def check(block: str) -> int:
    """Run a block, hold each claim against what its line gives, and return how many there were."""
    names: dict[str, object] = {}
    lines, checked = block.splitlines(), 0
    for node in ast.parse(block).body:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        claim = CLAIM.search(source)
        if not isinstance(node, ast.Expr) or claim is None:
            exec(source, names)
            continue
        value, said = eval(source, names), eval(claim.group(1), {"array": np.array})
        decimals = max(map(len, re.findall(r"\.(\d+)", claim.group(1))))
        np.testing.assert_allclose(value, said, atol=0.51 * 0.1**decimals)
        checked += 1
    return checked
