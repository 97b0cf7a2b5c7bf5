"""Measure how readable the packages are, and hold the figures below the limits in
readability.toml.

python dev/tools/readability.py print figures and limits; exit with 1 if a limit is
exceeded python dev/tools/readability.py --write lower the limits to the figures python
dev/tools/readability.py --write --raise set the limits to the figures, also where these
are higher python dev/tools/readability.py FILE ... print the figures of files, and the
places that count
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Path(__file__).with_suffix(".toml")
COMMAND = "python dev/tools/readability.py"

PACKAGES = {
    "kernels": "kernels/**/*.py",
    "tasks": "tasks/**/*.py",
    "flows": "flows/**/*.py",
    "conf": "conf/**/*.py",
    "reproduction": "learnkernels/reproduction/**/*.py",
    "learnkernels": "learnkernels/*.py",
}
"""The files of each package, as a pattern below the root."""

STEPS = {
    "files": 1,
    "nodes": 100,
    "nodes_per_line": 0.05,
    "conditionals_per_1000_lines": 0.5,
    "packed_per_1000_lines": 0.5,
    "fillers": 1,
    "stilted_per_1000_words": 0.1,
    "words": 50,
}
"""The figures of a package, and the multiple that each limit is rounded up to."""

FILLERS = """
one of some own these those such here there found given held kept said told asked known made taken shown wanted
met least most less later whole
"""
"""Names that do not describe the value of a variable."""

STILTED = {
    "clause as a noun": r"\b(?:of|by|for|from|with|to|as|is|are|returns?|takes?|adds?|makes?) (?:what|who)(?:ever)?\b",
    "sentence without a noun": r"(?m)(?:^ *|[.:] )(?:What|Who|Whoever|Whatever|Those|Of) [a-z]",
    "verb of speech": r"\b(?:says?|said|tells?|told|knows?)\b",
    "alone": r"\b\w+ alone\b",
    "none": r"\b(?:is|are|was|were|of) none\b|\bthat is no\b",
    "trailing where": r"\bwhere (?:it|they|there|some|none) (?:is|are|has|have|does|do)\b",
    "one a row": r"\b(?:one|an? \w+) an? (?:row|column|line|fold|class|kernel|file|run|item|page|thread|core)\b",
    "as given": r"\bas (?:given|it is|they are)\b",
    "so many": r"\bso (?:many|much)\b",
}
"""Phrases in which a clause or a pronoun replaces a noun, by kind."""

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Figures = dict[str, dict[str, float]]
"""Each figure of each package."""


def is_docstring(node: ast.AST) -> bool:
    """Whether a node is a text that stands as a statement."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_packed(node: ast.AST) -> bool:
    """Whether a node assigns several values to several names."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def bound_name(node: ast.AST) -> str:
    """The parameter or variable that a node binds, empty if it binds none."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return ""


def places_in_code(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Kind, line and description of each conditional expression, packed assignment and filler name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield "conditionals", node.lineno, "conditional expression"
        elif is_packed(node):
            yield "packed", node.lineno, "packed assignment"
        elif bound_name(node) in FILLERS.split():
            yield "fillers", node.lineno, f"filler name: {bound_name(node)}"


def places_in_text(line: int, text: str) -> Iterator[tuple[str, int, str]]:
    """Kind, line and description of each stilted phrase of a text that begins on a line."""
    for kind, pattern in STILTED.items():
        for match in re.finditer(pattern, text):
            yield (
                "stilted",
                line + text[: match.start()].count("\n"),
                f"{kind}: {match[0].strip()}",
            )


def measure(path: Path) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Return the counts of a file, and line and description of each place that counts."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstrings = [node for node in ast.walk(tree) if is_docstring(node)]
    contexts = [node for node in ast.walk(tree) if isinstance(node, ast.expr_context)]
    texts = [(node.lineno, node.value.value) for node in docstrings]
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts.append((token.start[0], token.string))
        elif token.type not in LAYOUT:
            code_lines.update(range(token.start[0], token.end[0] + 1))
    for node in docstrings:
        code_lines.difference_update(range(node.lineno, node.end_lineno + 1))

    counts = Counter(files=1, lines=len(code_lines))
    counts["nodes"] = (
        sum(1 for _ in ast.walk(tree)) - len(contexts) - 2 * len(docstrings)
    )
    places = list(places_in_code(tree))
    for line, text in texts:
        text = re.sub(r"`[^`]*`", "Code", text)
        counts["words"] += len(re.findall(r"[A-Za-z][\w'-]*", text))
        places += places_in_text(line, text)
    counts.update(kind for kind, _, _ in places)
    return counts, sorted((line, description) for _, line, description in places)


def figures_of(counts: Counter[str]) -> dict[str, float]:
    """Return the figures that have limits."""
    lines = max(1, counts["lines"])
    figures: dict[str, float] = {name: counts[name] for name in STEPS}
    figures["nodes_per_line"] = counts["nodes"] / lines
    figures["conditionals_per_1000_lines"] = 1000 * counts["conditionals"] / lines
    figures["packed_per_1000_lines"] = 1000 * counts["packed"] / lines
    figures["stilted_per_1000_words"] = (
        1000 * counts["stilted"] / max(1, counts["words"])
    )
    return figures


def measure_packages() -> Figures:
    """Return the figures of each package."""
    figures = {}
    for package, pattern in PACKAGES.items():
        total: Counter[str] = Counter()
        for path in ROOT.glob(pattern):
            total += measure(path)[0]
        figures[package] = figures_of(total)
    return figures


def read_limits() -> Figures:
    """Return the limits of each package."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8"))


def violations(figures: Figures, limits: Figures) -> list[str]:
    """Return a sentence for each figure above its limit, and for each figure far below it."""
    sentences = []
    for package, values in figures.items():
        for name, value in values.items():
            limit = limits[package][name]
            margin = 2 * STEPS[name] + 0.02 * limit
            comparison = (
                f"{package}: {name} is {value:,.6g}, and its limit is {limit:,.6g}."
            )
            if value > limit:
                sentences.append(
                    f"{comparison} Simplify, or run `{COMMAND} --write --raise` and give the reason."
                )
            elif value < limit - margin:
                sentences.append(f"{comparison} Lower the limit: `{COMMAND} --write`.")
    return sentences


def write_limits(figures: Figures, limits: Figures, may_rise: bool) -> None:
    """Write the figures, rounded up, as limits; without `may_rise`, no limit becomes higher."""
    lines = [
        f"# Written by `{COMMAND} --write`. A commit that raises a limit gives the reason."
    ]
    for package, values in figures.items():
        lines += ["", f"[{package}]"]
        for name, value in values.items():
            limit = math.ceil(round(value / STEPS[name], 6)) * STEPS[name]
            if not may_rise:
                limit = min(limit, limits[package][name])
            lines.append(f"{name} = {limit:.12g}")
    LIMITS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def summary(name: str, figures: dict[str, float]) -> str:
    """Return the figures of a package or file in a line."""
    return f"{name}: " + ", ".join(
        f"{figure} {value:,.6g}" for figure, value in figures.items()
    )


def report_files(paths: list[Path]) -> str:
    """Return the figures of files, and the places that count."""
    lines = []
    for path in paths:
        counts, places = measure(path)
        lines += [f"{path}:{line}: {description}" for line, description in places]
        lines.append(summary(str(path), figures_of(counts)))
    return "\n".join(lines)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raise", action="store_true", dest="may_rise")
    options = parser.parse_args()
    if options.files:
        sys.stdout.write(report_files(options.files) + "\n")
        return 0
    figures = measure_packages()
    if options.write:
        write_limits(figures, read_limits(), options.may_rise)
    sentences = violations(figures, read_limits())
    lines = [summary(package, values) for package, values in figures.items()]
    sys.stdout.write("\n".join(lines + sentences) + "\n")
    return int(bool(sentences))


if __name__ == "__main__":
    sys.exit(main())
