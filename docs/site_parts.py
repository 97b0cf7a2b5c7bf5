"""What the site needs beside Sphinx and its extensions: formulas without scripts, anchors, the gallery's order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from learnkernels.conf.schema import CompareConfig

SPELLED = [
    (re.compile(r"\\([bB]igg?)(?=[(\[]|\\[lL]Vert)"), r"\\\1l"),
    (re.compile(r"\\([bB]igg?)(?=[)\]]|\\[rR]Vert)"), r"\\\1r"),
    (re.compile(r"\\dots\b"), r"\\ldots"),
    (re.compile(r"\\texttt\b"), r"\\text"),
]
"""What the converter does not know, and the same in words that it knows."""

ANCHOR = re.compile(r'^<a id="([\w.-]+)"></a>$', re.M)
"""An anchor as every reader of Markdown knows it; the site's parser knows another spelling."""

GALLERY = (
    *("first_table", "regression", "grid_search", "alignment_and_error"),
    *("multi_view", "text_ngrams", "genes", "sensors", "graphs"),
    *("feature_relevance", "explain", "learned_metric", "features_for_others"),
    *("representations", "weights_along_lambda"),
    *("imbalanced", "probabilities", "groups", "time_order"),
    *("many_rows", "own_learner", "keep_a_model", "nightly"),
)
"""The examples in the order of the gallery: first steps, kinds of data, what was learned, protocols, use."""


class GalleryOrder:
    """Sorts the chapters of the guide by their numbers and the examples as `GALLERY` says."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        """Return what a file is sorted by."""
        stem = Path(filename).stem
        return (GALLERY.index(stem) if stem in GALLERY else len(GALLERY), stem)


def mathml(latex: str, *, block: bool) -> str:
    """Return a formula as MathML, which browsers show by themselves."""
    latex = " ".join(latex.split())
    for pattern, known in SPELLED:
        latex = pattern.sub(known, latex)
    return str(tex2mathml(latex, as_block=block))


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(
        f'<div class="formula">{mathml(node.astext(), block=True)}</div>\n'
    )
    raise nodes.SkipNode


def spell(app: Sphinx, page: str, source: list[str]) -> None:
    """Spell anchors, and links to pages beside this folder, as the site's parser does."""
    source[0] = ANCHOR.sub(r"(\1)=", source[0]).replace(
        "](../.github/CONTRIBUTING.md)", "](contributing.md)"
    )


PARTS = {
    "CompareConfig": "The file",
    "FileConfig": "An entry of `datasets`: files",
    "OpenmlConfig": "An OpenML data set",
    "SklearnConfig": "A set of scikit-learn",
    "SyntheticConfig": "Rows of a known distribution",
    "NgramsConfig": "`ngrams` of a data set",
    "ProtocolConfig": "`protocol`",
    "SplitConfig": "`split` of a protocol",
    "ChooseConfig": "`choose` of a protocol",
    "LearnerConfig": "An entry of `learners`",
    "PredictorConfig": "`predictor`",
    "StatisticsConfig": "`statistics`",
    "BaselineConfig": "`baseline`",
    "DaskConfig": "`dask`",
    "TrackingConfig": "`tracking`",
    "DriftConfig": "`drift`",
    "Powers": "A grid of powers",
    "Spaced": "A grid between two ends",
    "OwnConfig": "A family of your own",
}
"""The parts of a configuration in the order of the tables of keys; families of kernels follow them."""

FAMILIES = 8
"""From so many kinds on, a value is one of the families, each of which has a table."""

LONGEST_DEFAULT = 30
"""Characters of a default that is shown; longer ones are told in words."""


def kind_of(key: dict[str, Any]) -> str:
    """Return in a few words what the value of a key may be."""
    if "$ref" in key:
        return str(key["$ref"]).rpartition("/")[2].removesuffix("Config").lower()
    if "const" in key:
        return f"`{key['const']}`"
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"])
    for several in ("anyOf", "oneOf"):
        if several in key:
            kinds = list(dict.fromkeys(kind_of(one) for one in key[several]))
            return " or ".join(kinds) if len(kinds) < FAMILIES else "family"
    if key.get("type") == "array":
        return f"list of {kind_of(key['items'])}" if key.get("items") else "list"
    return {"object": "mapping", "string": "text", "null": "nothing"}.get(
        key.get("type", ""), key.get("type", "any")
    )


def tables_of_keys() -> Iterator[str]:
    """Yield the lines of Markdown that tell every key of a configuration."""
    schema = CompareConfig.model_json_schema()
    parts = {"CompareConfig": schema, **schema["$defs"]}
    for name in [*PARTS, *(other for other in parts if other not in PARTS)]:
        family = parts[name]["properties"].get("family", {})
        named = [family["const"]] if "const" in family else family.get("enum", [name])
        yield from (
            f"## {PARTS.get(name, ', '.join(f'`{one}`' for one in named))}",
            "",
            "| key | what it says | value | default |",
            "|---|---|---|---|",
        )
        for key, said in parts[name]["properties"].items():
            default = (
                json.dumps(said["default"]) if said.get("default") is not None else ""
            )
            shown = f"`{default}`" if 0 < len(default) <= LONGEST_DEFAULT else ""
            cells = (f"`{key}`", said.get("description", ""), kind_of(said), shown)
            yield f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"
        yield ""


class Keys(SphinxDirective):
    """Shows the tables of keys, made from the models that check a configuration."""

    def run(self) -> list[nodes.Node]:
        """Return the tables, always anew: the models may have changed where the page has not."""
        self.env.note_reread()
        return self.parse_content_to_nodes(allow_section_headings=True)

    def parse_content_to_nodes(
        self, allow_section_headings: bool = False
    ) -> list[nodes.Node]:
        """Parse the tables in place of a content."""
        self.content = StringList(
            list(tables_of_keys()), source="the models of learnkernels.conf.schema"
        )
        return super().parse_content_to_nodes(
            allow_section_headings=allow_section_headings
        )


OF_SCIKIT_LEARN = re.compile(
    r"set_\w+_request|get_metadata_routing|set_output|[gs]et_params"
)
"""Methods that every estimator has and that scikit-learn tells of, by links that lead nowhere here."""


def skip_what_others_tell(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out the methods that scikit-learn adds to every estimator."""
    return True if OF_SCIKIT_LEARN.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Join the site's build."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.add_directive("configuration-keys", Keys)
    app.connect("source-read", spell)
    app.connect("autodoc-skip-member", skip_what_others_tell)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
