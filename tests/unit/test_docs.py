"""What the pages, docstrings, examples and pictures say and show, where nothing is built."""

import ast
import inspect
import re
import tomllib
from pathlib import Path
from urllib.parse import urldefrag

import yaml
from PIL import Image

import learnkernels
from docs.site_parts import GALLERY, mathml
from docs.take_screenshots import PAGES
from learnkernels.kernels.learners import COLUMNS, LEARNERS
from learnkernels.kernels.learners import table as table_of_learners
from learnkernels.reproduction.command import app
from learnkernels.reproduction.item import item_names, load_item
from learnkernels.reproduction.report import EARLIER
from learnkernels.tasks.measure.run_learner import COLUMNS as COLUMNS_OF_FOLDS
from learnkernels.tasks.reporting.tables import display_table, summarize
from learnkernels.tasks.reporting.tracking import EACH_TRIAL, MEANS
from tests.unit.reproduction.test_judge import UNIF, table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = ("gallery", "guide", "__pycache__")
"""Folders of docs that are made."""


def test_the_pages_name_every_command_learner_and_configuration():
    commands = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert (
            f"| `learnkernels {command.name or command.callback.__name__}` |"
            in commands
        )
    choose = (DOCS / "choose.md").read_text(encoding="utf-8")
    assert [learner for learner in LEARNERS if f"`{learner}`" not in choose] == []
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for path in re.findall(
            r"conf/(?:examples/)?[\w-]+\.yaml", page.read_text(encoding="utf-8")
        ):
            assert yaml.safe_load((ROOT / path).read_text())["name"], page.name


def test_the_readme_shows_the_summary_of_the_benchmark():
    board = (DOCS / "board.md").read_text(encoding="utf-8")
    (row,) = re.findall(
        r"^\| error relative to tuned RBF \(geometric mean\) (.*)", board, re.M
    )
    (head,) = re.findall(
        r"^\| \| (classification, \d+ data sets) \| (regression, \d+ data sets) \|$",
        board,
        re.M,
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for (ours, theirs), of in zip(
        re.findall(r"([\d.]+) \(CatBoost ([\d.]+)\)", row), head, strict=True
    ):
        task, count = of.split(", ")
        shown = (
            rf"^\| {task} \({count}\) \| {float(ours):.2f} \| {float(theirs):.2f} \|$"
        )
        assert re.search(shown, readme, re.M), of


def test_the_readme_shows_losses_of_the_benchmark():
    board = (DOCS / "board.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"^\| ([\w-]+), (?:.*, )?([\d,]+) rows \| ([\d.]+) \| ([\d.]+ \(\w+\)) \|$",
        readme,
        re.M,
    )
    assert len(shown) == 3
    measured = re.findall(
        r"^\| ([\d,]+) \| ([\w-]+)[^|]* \| error \| ([\d.]+) \| ([\d.]+ \(\w+\)) \|$",
        board,
        re.M,
    )
    for name, n_rows, ours, theirs in shown:
        assert (n_rows, name, ours, theirs) in measured


def test_the_table_of_learners_in_the_documents_is_what_the_command_prints():
    text = (DOCS / "reference" / "learners.md").read_text(encoding="utf-8")
    shown = re.search(
        r"<!-- table: learnkernels learners --markdown -->\n(.*?)<!-- end -->",
        text,
        re.DOTALL,
    )
    expected = [
        f"| {' | '.join(line)} |"
        for line in (COLUMNS, ["---"] * len(COLUMNS), *table_of_learners())
    ]
    assert shown.group(1).splitlines() == expected, (
        "run: learnkernels learners --markdown"
    )


def named(page: str, title: str = "") -> set[str]:
    """The names in the first column of the tables of a page of the reference, or of one of its sections."""
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    section = (
        text.partition(f"## {title}\n")[2].partition("\n## ")[0] if title else text
    )
    return {
        name
        for cell in re.findall(r"^\| (`.*?) \|", section, re.M)
        for name in re.findall(r"`([^`]+)`", cell)
    }


def test_the_reference_has_every_column_of_the_results():
    folds = table({("d", "unif"): UNIF, ("d", "alignf"): UNIF / 2})
    summary = summarize(folds.assign(stored=None, n_sampled=10.0, alignment=0.5))
    assert named("results", "`folds.parquet`") == set(COLUMNS_OF_FOLDS.names)
    assert named("results", "`summary.parquet`") == set(summary.columns)
    assert named("results", "The report's table") == set(display_table(summary)[0])
    assert {*MEANS.values(), *EACH_TRIAL.values()} <= named(
        "results", "What MLflow receives"
    )


def test_the_reference_has_every_variable_of_the_environment_that_is_read():
    files = [
        path
        for room in ("kernels", "tasks", "flows", "learnkernels")
        for path in (ROOT / room).rglob("*.py")
    ]
    code = "".join(path.read_text("utf-8") for path in files)
    read = set(
        re.findall(
            r"""environ(?:\.\w+)?[\[(]"([A-Z0-9_]+)"|"([A-Z0-9_]+)" not in os\.environ""",
            code,
        )
    )
    assert {name for pair in read for name in pair if name} <= named("environment")
    assert {name for name in named("environment") if name not in code} == set()


def anchors(text: str) -> set[str]:
    """What a link into a page of Markdown may lead to."""
    titles = [
        re.sub(r"[^\w\- ]", "", title.lower())
        for title in re.findall(r"^#+ (.+)$", text, re.M)
    ]
    return {title.replace(" ", "-") for title in titles} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


def test_the_tests_that_show_the_features_are_there():
    lines = (ROOT / "tests" / "features.txt").read_text(encoding="utf-8").splitlines()
    shown = [
        re.fullmatch(r"[^:]+: ([\w/]+\.py)::(\w+)", line).groups() for line in lines
    ]
    assert len(shown) > 25
    assert [
        name
        for file, name in shown
        if f"\ndef {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ] == []


def test_links_of_the_pages_lead_somewhere():
    broken = []
    for page in [
        ROOT / "README.md",
        ROOT / ".github" / "CONTRIBUTING.md",
        *DOCS.rglob("*.md"),
    ]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, fragment = urldefrag(link)
            if (
                re.match(r"https?:", link)
                or path.startswith(MADE)
                or path.endswith(".rst")
            ):
                continue
            target = page.parent / path if path else page
            if not target.exists() or (
                fragment and fragment not in anchors(target.read_text(encoding="utf-8"))
            ):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def docstring(thing: object, member: str) -> str:
    """The docstring of a member of a class; of a property without one, its lines under Attributes of the class."""
    attributes = (inspect.getdoc(thing) or "").partition("Attributes\n----------\n")[2]
    listed = re.search(
        rf"^(?:\w+, )*{member}\b.* : .*(?:\n\S.* : .*)*\n    \S.*", attributes, re.M
    )
    return inspect.getdoc(getattr(thing, member)) or (listed[0] if listed else "")


def test_no_docstring_of_a_public_function_class_or_method_is_empty():
    things = {name: getattr(learnkernels, name) for name in learnkernels.__all__}
    found = {
        name: inspect.getdoc(thing) or ""
        for name, thing in things.items()
        if callable(thing)
    }
    for name in [name for name in found if inspect.isclass(things[name])]:
        for member, value in vars(things[name]).items():
            defined = isinstance(
                value, property | classmethod | staticmethod
            ) or inspect.isfunction(value)
            if defined and not member.startswith("_"):
                found[f"{name}.{member}"] = docstring(things[name], member)
    assert len(found) > len(learnkernels.__all__)
    assert [name for name, text in found.items() if not text.strip()] == []


def test_a_formula_is_mathml():
    formulas = {
        r"\Big(\sum_k x\Big)": ">∑</mo>",
        r"a \dots b": "…",
        r"\big\lVert x \big\rVert": "‖",
    }
    formulas[r"1 / \texttt{radius}"] = "radius"
    for latex, expected in formulas.items():
        html = mathml(latex, block=False)
        assert html.startswith("<math")
        assert expected in html
        assert "\\" not in html


def test_make_builds_the_site_where_git_does_not_look():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    build = r"^docs: .*## .*\n\t@OPENBLAS_NUM_THREADS=1 \$\(BIN\)/python -m sphinx .* -W .* docs build/site$"
    assert re.search(build, makefile, re.M)
    assert {"build/", "docs/gallery/", "docs/guide/"} <= set(
        (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    )
    development = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["dev"]
    assert {re.match(r"[\w-]+", item).group() for item in development} >= {
        "sphinx",
        "sphinx-gallery",
        "myst-parser",
    }


def test_an_example_has_its_place_is_short_and_asks_its_question_first():
    examples = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "examples").glob("*.py")
    }
    assert sorted(GALLERY) == sorted(examples)
    assert len(GALLERY) >= 15
    assert sorted(path.stem[0] for path in (DOCS / "chapters").glob("*.py")) == [
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    for name, source in examples.items():
        title, line, text = (
            str(ast.get_docstring(ast.parse(source), clean=False))
            .strip("\n")
            .split("\n", 2)
        )
        assert re.fullmatch(rf"={{{len(title)}}}", line), name
        assert "?" in text or "?" in title, name
        assert (
            len(
                [
                    line
                    for line in source.splitlines()
                    if line and not line.startswith("#")
                ]
            )
            <= 100
        ), name


def require_not_blank(picture: Path) -> None:
    """A blank page, or one that is still loading, has a handful of grey tones; text alone has dozens."""
    with Image.open(picture) as image:
        some = image.convert("RGB").resize(
            (image.width // 4, image.height // 4), Image.Resampling.NEAREST
        )
    colors = some.getcolors(maxcolors=2**24)
    assert len(colors) >= 40, picture


def test_every_picture_is_shown_small_and_not_blank():
    shown = re.findall(
        r"!\[[^\]]*\]\(screenshots/([a-z-]+)\.png\)",
        (DOCS / "dashboards.md").read_text("utf-8"),
    )
    assert len(shown) == len(set(shown))
    assert (
        set(shown)
        == {shot.name for shot in PAGES}
        == {path.stem for path in (DOCS / "screenshots").iterdir()}
    )
    for name in shown:
        picture = DOCS / "screenshots" / f"{name}.png"
        assert picture.stat().st_size <= 250_000, name
        require_not_blank(picture)


def test_the_report_on_the_papers_has_a_page_for_every_item_with_its_texts_and_figures():
    summary = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert "not run" not in summary
    pages = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (DOCS / "reproduction").glob("*.md")
    }
    assert sorted(pages) == sorted(item_names())
    for name, page in pages.items():
        item = load_item(name)
        assert f"(reproduction/{name}.md)" in summary
        if re.search(rf"\(reproduction/{name}.md\).*{EARLIER}", summary):
            continue
        shown = " ".join(page.split())
        said = [claim.says.rstrip(".") for claim in item.claims]
        texts = (item.title, item.setup, *item.choices, item.tried or "", *said)
        assert [text for text in texts if " ".join(text.split()) not in shown] == [], (
            name
        )
        assert "cannot be judged" not in page
    figures = {
        link
        for page in pages.values()
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)
    }
    assert figures == {path.name for path in (DOCS / "reproduction").glob("*.png")}
