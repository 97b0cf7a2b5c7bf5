"""The API reference builds without a warning, shows every public name, and needs no network to be read."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import learnkernels
from docs.build_reference import PAGES, Formulas, build
from learnkernels.kernels.learners import LEARNERS

ROOT = Path(__file__).resolve().parents[1]
VOID = {"meta", "link", "input", "br", "img", "wbr", "hr"}


class Page(HTMLParser):
    """Identifiers, links and the text of the docstring of each entry."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.docstrings: dict[str, str] = defaultdict(str)
        self.formulas = 0
        self._open: list[tuple[str, str | None, bool]] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.formulas += tag == "math"
        if tag not in VOID:
            entry = values.get("id") if tag in ("section", "div") else None
            self._open.append((tag, entry, "docstring" in (values.get("class") or "").split()))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if any(docstring for _, _, docstring in self._open):
            entry = next((name for _, name, _ in reversed(self._open) if name), "")
            self.docstrings[entry] += data


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    files = build(folder)
    assert sorted(files) == sorted(path for path in folder.rglob("*") if path.is_file())
    return folder


@pytest.fixture(scope="module")
def pages(reference: Path) -> dict[str, Page]:
    return {name: Page(reference / f"{name.replace('.', '/')}.html") for name in PAGES}


@pytest.mark.parametrize("name", learnkernels.__all__)
def test_every_public_name_has_a_documented_entry(name: str, pages: dict[str, Page]):
    assert pages["learnkernels"].ids.count(name) == 1
    assert re.search(r"\w+ \w+", pages["learnkernels"].docstrings[name])


def test_every_learner_and_what_makes_a_model_are_documented(pages: dict[str, Page]):
    for learner in LEARNERS.values():
        assert pages["learnkernels.kernels.learners"].docstrings[learner.__name__], learner.name
    for name in ("Model", "load_model", "save_model"):
        assert pages["learnkernels.kernels.persistence.model"].docstrings[name], name


def public_docstrings() -> list[tuple[str, str | None]]:
    """Every exported function and class, and every public method and property that its class defines.

    A property without a docstring has its lines under Attributes in that of its class.
    """
    found = []
    for name in learnkernels.__all__:
        thing = getattr(learnkernels, name)
        if not callable(thing):
            continue
        found.append((name, inspect.getdoc(thing)))
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                defined = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
                if defined and not member.startswith("_"):
                    own = inspect.getdoc(getattr(thing, member))
                    attributes = (inspect.getdoc(thing) or "").partition("Attributes\n----------\n")[2]
                    listed = re.search(rf"^(?:\w+, )*{member}\b.* : .*(?:\n\S.* : .*)*\n    \S.*", attributes, re.M)
                    found.append((f"{name}.{member}", own or (listed and listed[0])))
    return found


def test_no_docstring_of_a_public_name_is_empty():
    found = public_docstrings()
    assert len(found) > len(learnkernels.__all__)
    assert [name for name, text in found if not (text or "").strip()] == []


def test_methods_are_shown_with_their_docstrings(pages: dict[str, Page]):
    for name in ("KernelLearningClassifier.fit", "KernelLearningRegressor.predict"):
        assert "Parameters" in pages["learnkernels"].docstrings[name]
    assert "Parameters" in pages["learnkernels.kernels.learned"].docstrings["LearnedKernel.cross_gram"]
    # What scikit-learn adds to every estimator is left out.
    assert [name for name in pages["learnkernels"].ids if re.search(r"set_\w+_request", name)] == []


def test_formulas_are_shown_as_such(reference: Path, pages: dict[str, Page]):
    written = [inspect.getdoc(getattr(learnkernels, name)) or "" for name in learnkernels.__all__]
    expected = sum(len(re.findall(r"\.\. math::|:math:`", text)) for text in written)
    assert pages["learnkernels"].formulas >= expected > 10
    for file in reference.rglob("*"):
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            assert re.findall(r"math::|:math:|formulax\d|\\\\?(?:frac|sum|mu|lVert|top)\b", text) == [], file.name


def test_nothing_is_fetched_and_no_link_leaves_the_reference(reference: Path):
    for file in reference.rglob("*"):
        if file.is_file():
            text = unquote(file.read_text(encoding="utf-8"))
            # Licences of style sheets and scripts stay in their comments; a name space is a name and no address.
            text = re.sub(r"/\*.*?\*/|xmlns=(['\"])[^'\"]*\1", "", text, flags=re.S)
            assert re.findall(r".{0,60}(?:https?:|//cdn|@import).{0,60}", text) == [], file.name


def test_every_link_leads_somewhere(reference: Path, pages: dict[str, Page]):
    ids = {(reference / f"{name.replace('.', '/')}.html").resolve(): set(page.ids) for name, page in pages.items()}
    followed = 0
    for name, page in pages.items():
        here = (reference / f"{name.replace('.', '/')}.html").resolve()
        for link in page.links:
            path, fragment = urldefrag(link)
            target = (here.parent / path).resolve() if path else here
            assert target.exists(), f"{name}: {link}"
            if fragment:
                assert fragment in ids[target], f"{name}: {link}"
            followed += 1
    assert followed > 3 * len(learnkernels.__all__)


def test_the_search_knows_every_public_name(reference: Path):
    script = (reference / "search.js").read_text(encoding="utf-8")
    for name in learnkernels.__all__:
        assert f"learnkernels.{name}" in script
    assert (reference / "index.html").read_text(encoding="utf-8").count("learnkernels.html") == 1


def test_a_formula_over_several_lines_is_one_paragraph():
    formulas = Formulas()
    text = formulas.taken_from("Say.\n\n.. math:: a = b,\n          \\qquad c\n\nwith :math:`\\mu` then.\n")
    assert re.fullmatch(r"Say\.\s+formulax0x\s+with formulax1x then\.\n", text)
    html = formulas.put_into(text)
    assert html.count("<math") == 2
    assert '<math display="block">' in html
    assert "μ" in html.replace("&#x003BC;", "μ")
    assert "\\qquad" not in html


def test_a_root_of_a_fraction_is_a_power_and_any_other_stays_a_root():
    formulas = Formulas()
    formulas.word(r"\sqrt{\frac{a}{2 m}} + \sqrt{c}", "block")
    (mathml,) = formulas.found
    assert mathml.count("<msqrt>") == mathml.count("<mfrac>") == mathml.count("<msup>") == 1
    assert re.search(r"<msup><mrow><mo>\(</mo>.*<mfrac>.*</mfrac>.*<mo>\)</mo></mrow><mn>1/2</mn></msup>", mathml)
    assert "<mi>c</mi>" in mathml.partition("<msqrt>")[2]


def test_a_command_that_has_no_formula_is_refused():
    with pytest.raises(ValueError, match=r"does not know a command in \\nosuchcommand"):
        Formulas().word(r"\nosuchcommand{x}", "inline")


def test_make_builds_it_where_git_does_not_look():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^docs: .*## .*\n\t@\$\(BIN\)/python docs/build_reference.py build/api$", makefile, re.M)
    assert "docs" in re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split()
    assert "build/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    development = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert {re.match(r"[\w-]+", item).group() for item in development} >= {"pdoc", "latex2mathml"}
