"""Items of the papers: what is read, what is filled in, and one sentence where something is wrong."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from learnkernels.conf.errors import InputError
from learnkernels.reproduction import item as papers
from tests.refusals import require_refusals

BIO = {"file": {"source": "file", "path": "bio.csv", "where": {"part": "a"}}}
BIO["openml"] = {"source": "openml", "name": "biology", "version": 2}
SETS = {"wine": {"file": {"source": "sklearn", "name": "wine"}}, "bio": BIO}
SETS["geo"] = {"file": {"source": "file", "path": "geo.csv"}}
CATALOGUE = {"data_dir": "no-such-folder", "sets": SETS}


def study(**keys: Any) -> dict[str, Any]:
    return {
        "kind": "comparison",
        "shared": {
            "kernels": [{"family": "linear"}],
            "protocol": {"repeats": 3, "seed": 4},
            "learners": ["unif"],
        },
        "parts": [
            {
                "datasets": [{"use": "wine"}],
                "learners": ["unif", "alignf"],
                "protocol": {"repeats": 2},
            }
        ],
        **keys,
    }


def item(**keys: Any) -> dict[str, Any]:
    return {
        "name": "jmlr2012-a", "paper": "JMLR 2012", "where": "Table 1", "title": "A", "setup": "Five folds.",
        "study": study(), **keys,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "datasets.yaml").write_text(yaml.safe_dump(CATALOGUE))
    write(tmp_path, item())
    return tmp_path


def write(folder: Path, data: dict[str, Any], name: str = "jmlr2012-a") -> None:
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))


def loaded(folder: Path, keys: dict[str, Any]) -> papers.PaperItem:
    """Return the item after some of its keys were changed."""
    write(folder, item(**keys))
    return papers.load_item("jmlr2012-a", folder)


def test_a_part_goes_before_what_parts_share_also_within_mappings(folder: Path):
    (config,) = papers.load_item("jmlr2012-a", folder).comparisons(
        "data", False, folder
    )
    assert [learner.title for learner in config.learners] == ["unif", "alignf"]
    assert (config.protocol.repeats, config.protocol.seed) == (2, 4)
    assert (config.name, config.data_dir) == ("jmlr2012-a", "data")
    assert config.tracking.experiment == "papers: JMLR 2012"
    assert config.tracking.tags == {"paper": "JMLR 2012", "item": "jmlr2012-a"}


def test_data_sets_come_from_the_catalogue_and_what_is_given_goes_first(folder: Path):
    parts = [
        {
            "datasets": [
                {"use": "bio", "subsample": 50},
                {"use": "bio", "name": "bio 20", "where": {"part": "b"}},
            ]
        },
        {"datasets": [{"use": "geo"}, {"source": "sklearn", "name": "iris"}]},
    ]
    found = loaded(folder, {"study": study(parts=parts)})
    one, two = found.comparisons("data", False, folder)
    assert [dataset.label for dataset in (*one.datasets, *two.datasets)] == [
        "bio",
        "bio 20",
        "geo",
        "iris",
    ]
    assert [dataset.where["part"] for dataset in one.datasets] == [("a",), ("b",)]
    assert one.datasets[0].subsample == 50
    with pytest.raises(
        papers.NotOnOpenML,
        match=r"-a: data set geo is not on OpenML; give the folder that has geo",
    ):
        found.comparisons(None, False, folder)
    (config,) = loaded(folder, {"study": study(parts=parts[:1])}).comparisons(
        None, False, folder
    )
    assert [of.label for of in config.datasets] == ["bio", "bio 20"]
    assert {(of.source, of.name, of.version) for of in config.datasets} == {
        ("openml", "biology", 2)
    }


def test_the_reduced_form_keeps_what_it_names_and_changes_what_it_sets(folder: Path):
    parts = [
        {
            "datasets": [{"use": "wine"}, {"use": "bio"}],
            "learners": ["unif", "alignf"],
            "baseline": {},
        }
    ]
    parts.append({"datasets": [{"use": "geo"}]})
    changes = {"shared.protocol.repeats": 1, "parts.0.normalize": "none"}
    quick = {"datasets": ["bio"], "learners": ["alignf"], "set": changes}
    found = loaded(folder, {"study": study(parts=parts), "quick": quick})
    (config,) = found.comparisons("data", True, folder)
    assert [dataset.label for dataset in config.datasets] == ["bio"]
    assert [learner.title for learner in config.learners] == ["alignf"]
    assert (config.protocol.repeats, config.normalize, config.baseline) == (
        1,
        "none",
        None,
    )
    assert config.tracking.experiment == "papers: JMLR 2012 (quick)"
    full = found.comparisons("data", False, folder)
    assert [len(one.datasets) for one in full] == [2, 1]
    assert full[0].baseline.kinds == ["grid-search"]  # no paper has other baselines


def test_an_item_that_is_the_same_as_another_takes_its_study(folder: Path):
    other = item(name="icml2010-b", paper="ICML 2010", same_as="jmlr2012-a", title="B")
    del other["study"]
    write(folder, other, "icml2010-b")
    write(folder, item(choices=["Seed 4."], figure="ranks"))
    found = papers.load_item("icml2010-b", folder)
    assert (found.title, found.choices, found.figure.kind) == (
        "B",
        ("Seed 4.",),
        "ranks",
    )
    (config,) = found.comparisons("data", False, folder)
    assert config.tracking.experiment == "papers: ICML 2010"


def test_items_come_in_the_order_of_the_papers(folder: Path):
    names = [
        "afk2013-sets",
        "uai2009-section5.1",
        "nips2009-figure3",
        "nips2009-figure2",
        "icml2010-table1",
    ]
    for name in names:
        write(folder, item(name=name), name)
    assert papers.item_names(folder) == [
        "jmlr2012-a", "icml2010-table1", "nips2009-figure2", "nips2009-figure3", "uai2009-section5.1", "afk2013-sets",
    ]  # fmt: skip
    chosen = papers.choose_items(["uai2009-section5.1", "jmlr2012-a"], folder)
    assert [one.name for one in chosen] == ["jmlr2012-a", "uai2009-section5.1"]


def test_a_reading_is_the_item_with_some_keys_changed(folder: Path):
    reading = {
        "says": "Kernels are scaled otherwise.",
        "set": {"shared.normalize": "none"},
        "learners": ["alignf"],
    }
    flowers = {"source": "sklearn", "name": "iris", "label": "flowers"}
    parts = [
        {"datasets": [{"use": "wine"}], "learners": ["unif", "alignf"], "baseline": {}},
        {"datasets": [flowers]},
    ]
    write(folder, item(study=study(parts=parts), readings={"unscaled": reading}))
    whole, other = papers.choose_items(["jmlr2012-a", "jmlr2012-a.unscaled"], folder)
    assert [one.normalize for one in whole.comparisons("data", False, folder)] == [
        "trace",
        "trace",
    ]
    # The second part has no such learner
    (config,) = other.comparisons("data", False, folder)
    assert (config.name, config.normalize, config.baseline) == (
        "jmlr2012-a.unscaled",
        "none",
        None,
    )
    assert [learner.title for learner in config.learners] == ["alignf"]
    assert other.setup == "Another reading of jmlr2012-a: Kernels are scaled otherwise."
    assert [one.name for one in papers.choose_items([], folder)] == ["jmlr2012-a"]
    with pytest.raises(
        InputError, match="jmlr2012-a has no reading 'unscale'; did you mean 'unscaled'"
    ):
        papers.choose_items(["jmlr2012-a.unscale"], folder)


CLAIM = {"says": "So.", "better": "alignf", "than": "unif"}


def cell(**keys: Any) -> dict[str, Any]:
    return {"dataset": "wine", "learner": "unif", **keys}


def part(datasets: str, *learners: str) -> dict[str, Any]:
    return {
        "study": study(
            parts=[
                {
                    "datasets": [{"use": datasets}],
                    "learners": list(learners or ["unif"]),
                }
            ]
        )
    }


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"paper": "JMLR 2013"},
        "paper: 'JMLR 2013' is not valid, did you mean 'JMLR 2012'?",
    ),
    ({"printd": []}, "unknown key 'printd'; did you mean 'printed'?"),
    (
        {"name": "jmlr2012-b"},
        "name must be that of the file, 'jmlr2012-a', got 'jmlr2012-b'",
    ),
    (
        {"study": {"kind": "comparisons"}},
        "study: 'comparisons' is not valid, did you mean 'comparison'?",
    ),
    (part("vine"), "no data set 'vine' in the catalogue; did you mean 'wine'?"),
    (part("wine", "alignff"), "study.parts.0: learners.0: 'alignff' is not valid"),
    (
        {"study": study(parts=[study()["parts"][0]] * 2)},
        "study.parts: unif on wine is in two parts",
    ),
    (
        {"printed": [cell()]},
        "printed.0: a cell needs one of: error, alignment, test_alignment, rank",
    ),
    (
        {"printed": [{"learner": "unif", "error": [1]}]},
        "printed.0: a cell needs 'dataset' and 'learner'",
    ),
    (
        {"printed": [cell(learner="un", error=[1])]},
        "printed.0.learner: 'un' is not in the study; did you mean 'unif'?",
    ),
    (
        {"claims": [CLAIM | {"on": ["vine"]}]},
        "claims.0.on: 'vine' is not in the study; did you mean 'wine'?",
    ),
    (
        {"claims": [CLAIM | {"value": "rho"}]},
        "claims.0: a claim on a 'value' needs 'above' or 'below'",
    ),
    (
        {"claims": [{"says": "So.", "better": "unif"}]},
        "claims.0: a claim needs 'better' and 'than', or 'value'",
    ),
    ({"figure": "curve"}, "figure: 'curve' is not valid, did you mean 'curves'?"),
    ({"quick": {"datasets": ["iris"]}}, "quick keeps no data set or no learner"),
    (
        {"quick": {"set": {"parts.3.seed": 1}}},
        "quick.set: parts.3.seed: parts holds entries 0 to 0, got '3'",
    ),
    (
        {"quick": {"checks": [cell(error=[2, 1])]}},
        "error must be [low, high], got [2, 1]",
    ),
    ({"quick": {"checks": [cell()]}}, "quick.checks.0: a cell needs one of: error"),
    (
        {"readings": {"w": {"says": "So.", "set": {"parts.3.x": 1}}}},
        "readings.w.set: parts.3.x: parts holds entri",
    ),
    (
        {"same_as": "jmlr2012-b"},
        "there is no item 'jmlr2012-b'; did you mean 'jmlr2012-a'?",
    ),
    ({"same_as": "jmlr2012-a"}, "same_as must name an item without same_as"),
]


def test_what_is_wrong_is_one_sentence(folder: Path):
    table = ((partial(loaded, folder, keys), sentence) for keys, sentence in WRONG)
    require_refusals(table, literal=True, error=InputError)


def test_files_that_cannot_be_read_are_one_sentence(folder: Path):
    with pytest.raises(
        InputError,
        match=r"no item 'jmlr-a'; did you mean 'jmlr2012-a'\? learnkernels papers --list",
    ):
        papers.choose_items(["jmlr-a"], folder)
    for text, reason in (
        ("a: [", "is not valid YAML at line"),
        ("- a", "must hold keys and values, got list"),
    ):
        (folder / "jmlr2012-a.yaml").write_text(text)
        with pytest.raises(InputError, match=f"jmlr2012-a.yaml: {reason}"):
            papers.load_item("jmlr2012-a", folder)
    (folder / "datasets.yaml").unlink()
    with pytest.raises(
        InputError, match=r"datasets.yaml: cannot be read \(No such file"
    ):
        papers.load_catalogue(folder)
    with pytest.raises(InputError, match="there is no such folder of items"):
        papers.item_names(folder / "none")


def test_on_is_a_word_and_not_a_truth_value(folder: Path):
    text = yaml.safe_dump(item(claims=[CLAIM | {"on": ["wine"]}])).replace(
        "'on':", "on:"
    )
    assert "  on:\n" in text
    (folder / "jmlr2012-a.yaml").write_text(text)
    assert papers.load_item("jmlr2012-a", folder).claims[0].on == ("wine",)


def test_the_folder_of_data_is_the_given_one_that_of_the_catalogue_or_none(
    folder, monkeypatch
):
    monkeypatch.chdir(folder)
    assert papers.data_folder(None, folder) is None
    assert papers.data_folder(str(folder), folder) == str(folder)
    (folder / "no-such-folder").mkdir()
    assert papers.data_folder(None, folder) == "no-such-folder"
    with pytest.raises(
        InputError, match="--data-dir elsewhere: there is no such folder"
    ):
        papers.data_folder("elsewhere", folder)


def test_places_in_a_panel_are_the_last_word():
    assert papers.panel_and_place("kitchen 1000") == ("kitchen", 1000.0)
    for name in ("kitchen", "breast cancer", "100"):
        assert papers.panel_and_place(name) == (name, None)


def test_the_items_of_the_papers_are_complete():
    for name in papers.item_names(papers.PAPERS):
        found = papers.load_item(name)
        assert found.printed or found.claims, name
        assert found.is_comparison is bool(found.comparisons(".", False)), name
