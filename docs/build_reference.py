"""Build the API reference as HTML: `python docs/build_reference.py build/api`, or `make docs`.

pdoc renders the docstrings. Its formulas would need a script from the network in the reader's browser, so here they
become MathML, which browsers show by themselves: what is built can be read on a machine without a network.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pdoc.doc
import pdoc.render
from latex2mathml.converter import convert
from pdoc import doc_ast

PAGES = {
    "learnkernels": None,
    "learnkernels.kernels.families": None,
    "learnkernels.kernels.learners": None,
    "learnkernels.kernels.predictors": None,
    "learnkernels.kernels.learned": ("LearnedKernel",),
    "learnkernels.kernels.learning": ("learn_from_moments", "learn_kernel", "learn_path"),
    "learnkernels.kernels.moments.gram": ("GramMoments", "gram_moments"),
    "learnkernels.kernels.persistence.model": ("Model", "load_model", "save_model"),
}
"""Modules that get a page, and the names on it; by default those of `__all__`, or all that are not private."""

SHOWN = 100
"""Most characters of a constant that are shown; tables of functions are best read in the documents."""

BLOCK = re.compile(r"^( *)\.\. math::[ ]*((?:.*)(?:\n(?:\1 +\S.*|[ ]*(?=\n+\1 +\S)))*)", re.M)
INLINE = re.compile(r":math:`([^`]+)`")
LINK = re.compile(r'<a href="(?:[./\w]*?(\w+)\.html)?#([\w.]+)">(.*?)</a>')
WORD = re.compile(r"formulax(\d+)x")
"""What stands for a formula while Markdown is made: nothing on the way changes such a word."""

SPELLED = [
    (re.compile(r"\\arg\b"), r"\\operatorname{arg}"),
    (re.compile(r"\\[bB]igg?[lr]?(?:\\[lr]Vert|\\\|)"), r"\\lVert"),
]
"""What the converter does not know, and the same in words that it knows."""


class Formulas:
    """The formulas of all docstrings, as MathML."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def word(self, latex: str, display: str) -> str:
        """Return the word that stands for a formula."""
        latex = " ".join(latex.split())
        for pattern, known in SPELLED:
            latex = pattern.sub(known, latex)
        # The name space is that of HTML already.
        mathml = convert(latex, display=display).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
        if "\\" in mathml:
            raise ValueError(f"the converter to MathML does not know a command in {latex}; spell it in SPELLED.")
        self.found.append(with_powers_for_tall_roots(mathml))
        return f"formulax{len(self.found) - 1}x"

    def taken_from(self, docstring: str) -> str:
        """Return a docstring with a word in place of every formula, displayed ones as paragraphs of their own."""
        docstring = BLOCK.sub(lambda match: f"\n{match[1]}{self.word(match[2], 'block')}\n", docstring)
        return INLINE.sub(lambda match: self.word(match[1], "inline"), docstring)

    def put_into(self, html: str) -> str:
        """Return a page with the formulas in place of their words."""
        return WORD.sub(lambda match: self.found[int(match[1])], html)

    def put_into_strings(self, script: str) -> str:
        """Return a script with the formulas in place of their words, all of which are in strings."""
        return WORD.sub(lambda match: json.dumps(self.found[int(match[1])])[1:-1], script)


def with_powers_for_tall_roots(mathml: str) -> str:
    """Return a formula with a power of one half in place of every root of a fraction.

    Browsers stretch the sign of a root only where a mathematical font is installed; elsewhere it would seem to be the
    root of the numerator alone.
    """
    tree = ElementTree.fromstring(mathml)
    for root in list(tree.iter("msqrt")):
        if root.find(".//mfrac") is not None:
            inside = list(root)
            root[:] = [ElementTree.Element("mrow"), ElementTree.Element("mn")]
            root.tag, root[1].text = "msup", "1/2"
            opening, closing = ElementTree.Element("mo"), ElementTree.Element("mo")
            opening.text, closing.text = "(", ")"
            root[0].extend([opening, *inside, closing])
    return ElementTree.tostring(tree, encoding="unicode")


def documented(namespace: pdoc.doc.Namespace) -> Iterator[pdoc.doc.Doc]:
    """Yield a module or class and all that it holds."""
    yield namespace
    for member in namespace.members.values():
        if isinstance(member, pdoc.doc.Class):
            yield from documented(member)
        else:
            yield member


def variable_docstring(name: str, exporter: ModuleType) -> str:
    """Return the string below the definition of a variable, in whichever module of the package that is."""
    for loaded, module in list(sys.modules.items()):
        if loaded.startswith("learnkernels.") and getattr(module, name, None) is getattr(exporter, name):
            found = doc_ast.walk_tree(module).var_docstrings.get(name)
            if found:
                return found
    return ""


def page(name: str, names: tuple[str, ...] | None, formulas: Formulas) -> pdoc.doc.Module:
    """Return a module as it will be shown."""
    imported = import_module(name)
    for late in getattr(imported, "__all__", ()):
        # pdoc sees what a module holds, and names that come with their first use only after it.
        getattr(imported, late)
    module = pdoc.doc.Module(imported)
    if names is not None:
        module.members = {member: module.members[member] for member in names}
    for doc in documented(module):
        if isinstance(doc, pdoc.doc.Variable) and not doc.qualname.count("."):
            doc.docstring = doc.docstring or variable_docstring(doc.name, imported)
            if len(doc.default_value_str) > SHOWN:
                doc.default_value_str = ""
        doc.docstring = formulas.taken_from(doc.docstring)
        if isinstance(doc, pdoc.doc.Class):
            # Methods that scikit-learn adds to every estimator for the routing of metadata are its own matter.
            for method in [member for member in doc.members if re.fullmatch(r"set_\w+_request", member)]:
                del doc.members[method]
    return module


def stem_of(name: str) -> str:
    """Return what the file of a module is called; no two pages are called the same."""
    return name.rpartition(".")[2]


def without_dead_links(pages: dict[str, str]) -> dict[str, str]:
    """Return the pages without links to entries that no page has, as pdoc gives them to inherited methods."""
    ids = {stem_of(name): set(re.findall(r'\bid="([^"]+)"', html)) for name, html in pages.items()}

    def kept(here: str, match: re.Match[str]) -> str:
        return match[0] if match[2] in ids.get(match[1] or here, ()) else match[3]

    return {name: LINK.sub(partial(kept, stem_of(name)), html) for name, html in pages.items()}


def build(output: Path) -> list[Path]:
    """Write the reference into a folder and return the files.

    Parameters
    ----------
    output : Path
        Made where it does not exist; files of the same name are written over.

    Raises
    ------
    Warning
        Anything on the way warns.
    ValueError
        A formula holds a command that has no MathML here.
    """
    templates = Path(__file__).resolve().parent / "templates"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pdoc.render.configure(
            docformat="numpy",
            include_undocumented=False,
            math=False,
            show_source=False,
            template_directory=templates,
            footer_text="learnkernels",
        )
        formulas = Formulas()
        modules = {name: page(name, names, formulas) for name, names in PAGES.items()}
        pages = {name: pdoc.render.html_module(module, modules) for name, module in modules.items()}
        written = []
        for name, html in without_dead_links(pages).items():
            written.append(write(output / f"{name.replace('.', '/')}.html", formulas.put_into(html)))
        written.append(write(output / "index.html", pdoc.render.html_index(modules)))
        script = formulas.put_into_strings(pdoc.render.search_index(modules))
        written.append(write(output / "search.js", script))
    return written


def write(file: Path, text: str) -> Path:
    """Write a file and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder to write into")
    files = build(parser.parse_args().output)
    sys.stdout.write(f"open {files[0]}\n")
