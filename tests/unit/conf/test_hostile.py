"""Configurations that are damaged or hostile: one sentence, soon, and little memory."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from learnkernels.conf.errors import LONGEST, InputError, cut, listed, one_line, short
from learnkernels.conf.loading import DEEPEST, MOST_BYTES, load_config
from tools.mutations import fates, is_sentence, mutated_text

SHIPPED = sorted((Path(__file__).resolve().parents[3] / "conf").glob("*.yaml"))

CASES = 400
"""Changed configurations."""

SMALL = """
name: small
datasets: [{source: sklearn, name: diabetes}]
kernels: [{family: gaussian, gammas: [0.1, 1.0]}]
learners: [unif]
"""

CHANGES = [
    "protocol.folds=10",
    "datasets.0.scale=unit",
    "kernels.0.gammas={base: 2, from: 1, to: 3}",
    "learners.0=unif",
]


def refusal(path: Path, content: str | bytes, changes: tuple[str, ...] = ()) -> str:
    """Return the one sentence that a file and changes are refused in, within 20 seconds and little memory."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (fate,) = fates([0], lambda case: load_config(path, changes), (InputError,), seconds=20, memory=200 << 20)
    assert fate.kind == "sentence", fate.text[-2000:]
    return fate.text


def test_a_changed_configuration_is_read_or_refused_in_one_sentence(tmp_path: Path):
    path = tmp_path / "conf.yaml"

    def read(seed: int) -> None:
        random = Random(seed)
        text, changes = random.choice(SHIPPED).read_text(encoding="utf-8"), []
        if seed % 4:
            text = mutated_text(text, random)
        else:
            changes = [mutated_text(random.choice(CHANGES), random)]
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        load_config(path, changes).model_dump_json(by_alias=True)

    found = list(fates(range(CASES), read, (InputError,), seconds=30, memory=400 << 20))
    bad = [fate for fate in found if not fate.fine]
    assert not bad, "\n\n".join(f"{fate.case}: {fate.kind}: {fate.text[-2000:]}" for fate in bad[:5])
    assert {fate.kind for fate in found} == {"done", "sentence"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "must hold keys such as name, datasets, kernels, learners; got NoneType"),
        (b"- a\n- b\n", "got list"),
        (b"\x89PNG\r\n\x1a\n", "not UTF-8 text"),
        (b"name: \x00\n", r"is not valid YAML \(unacceptable character #x0000"),
        (b"a: b: c\n", r"is not valid YAML at line 1, column 5 \(mapping values are not allowed here"),
        (b"name: 2026-99-99\n", r"at line 1, column 7 \('2026-99-99' is no timestamp"),
        (b"name: " + b"9" * 5000, r"'9+ \.\.\. 9+' is no int"),
        (b"name: !!int ''\n", r"\('' is no int"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, rf"lists and mappings go more than {DEEPEST} levels deep"),
        (b"a: &a [*a]\n", "an alias stands within what it stands for"),
        (
            b"a0: &a0 [x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 30)),
            "there are more than 100,000 values and keys",
        ),
        (
            b"a0: &a0 {x: 1}\n"
            + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 30)),
            "there are more than 100,000 values and keys",
        ),
        (b"a: " + b"x" * MOST_BYTES, r"cannot be read \(more than 4 MiB\)"),
        (b"name: !!python/object:os.system x\n", "could not determine a constructor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, reason: str):
    assert re.search(reason, refusal(tmp_path / "conf.yaml", content))


def test_places_that_hold_no_file_are_named(tmp_path: Path):
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "gone", "No such file"),
        (Path("/dev/zero"), "more than 4 MiB"),
    ):
        with pytest.raises(InputError, match=rf"cannot be read \({reason}"):
            load_config(path)
    with pytest.raises(InputError, match=r"cannot be read \(File name too long"):
        load_config(Path("n" * 5000))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("kernels.0.gammas={base: 2, from: -1000000000, to: 1000000000}", "a grid has at most 1,000 numbers"),
        ("kernels.0.gammas={base: 1e300, from: 1, to: 2}", "is no positive number of a computer"),
        ("kernels.0.gammas={base: 2, from: -2000, to: -1990}", "is no positive number of a computer"),
        ("kernels.0.gammas={from: 1, to: 2, count: 1000000000}", "less than or equal to 1000"),
        ("protocol.grid={base: 1e300, from: 1, to: 900}", "is no positive number of a computer"),
        ("learners.0={name: nkrr, tune: {a: &x [1, 2, 3, 4, 5, 6, 7, 8, 9, 0], b: *x, c: *x, d: *x, e: *x, f: *x}}",
         "'tune' has 1000000 combinations"),
        ("datasets.99999999999999999999.scale=unit", "holds entries 0 to 0"),
        (f"datasets.{'9' * 5000}.scale=unit", "holds entries 0 to 0"),
        (".".join(["tracking", "tags", *"a" * 5000]) + "=1", "expected key=value"),
        ("protocol.folds=" + "[" * 5000, "the value is not valid YAML"),
        ("protocol.folds=0x" + "f" * 5000, "protocol.folds: "),
        ("protocol.folds=" + "x" * 5000, "protocol.folds: "),
        ("x" * 5000 + "=1", "unknown key"),
        ("name=" + "x" * 5000, "name: "),
        ("protocol.grid=" + str(list(range(2000, 0, -1))), "the grid must ascend without repetition"),
        ("normalise=a\\nb" + "é\u202e" * 300, "is not valid; expected 'trace', 'frobenius' or 'none'"),
        ("datasets.0={source: openml, version: 1, name: [" + "a, " * 3000 + "]}", "datasets.0"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_a_change_that_does_not_fit_is_refused(tmp_path: Path, change: str, reason: str):
    assert reason in refusal(tmp_path / "conf.yaml", SMALL, (change,))


def test_a_grid_at_the_limits_is_read(tmp_path: Path):
    path = tmp_path / "conf.yaml"
    path.write_text(SMALL)
    for grid in ("{base: 2, from: -499, to: 500}", "{from: 1, to: 2, count: 1000}"):
        assert load_config(path, [f"kernels.0.gammas={grid}"]).kernels


# Sentences -----------------------------------------------------------------------------------------------------------


def test_a_sentence_is_one_line_and_keeps_its_end():
    sentence = str(InputError("data set " + "x" * 5000 + " is\n\x00\u202e wrong;\n  rename it."))
    assert is_sentence(sentence)
    assert len(sentence) == LONGEST
    assert sentence.endswith(r"is \x00\u202e wrong; rename it.")


@pytest.mark.parametrize(
    "value",
    [
        "x" * 5000,
        "a\nb",
        "\udc80",
        ["a" * 5000] * 5000,
        {"a": {"b": list(range(5000))}},
        1 << 100_000,
        10.0,
        None,
        b"x" * 999,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_any_length_is_shown_in_short(value: Any):
    shown = short(value)
    assert len(shown) <= 62
    assert shown.isprintable()


def test_short_values_are_shown_as_they_are():
    assert [short(value) for value in ("a b", 3, 0.5, ["a", 1], None)] == ["'a b'", "3", "0.5", "['a', 1]", "None"]
    assert one_line(" a\n b ") == "a b"
    assert cut("abcdef", 6) == "abcdef"
    assert listed(["a" * 100] * 50).endswith(" and 47 more")
