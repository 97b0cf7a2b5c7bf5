"""Configurations that are damaged or hostile: one sentence, soon, and little memory, of each in a forked process."""

import re
from pathlib import Path
from random import Random
from typing import Any

from dev.tools.mutations import fates, mutated_text
from learnkernels.conf.errors import InputError
from learnkernels.conf.loading import DEEPEST, MOST_BYTES, load_config

CONF = Path(__file__).resolve().parents[2] / "conf"
SHIPPED = sorted([*CONF.glob("*.yaml"), *CONF.glob("examples/*.yaml")])

SMALL = """
name: small
datasets: [{source: sklearn, name: diabetes}]
kernels: [{family: gaussian, gammas: [0.1, 1.0]}]
learners: [unif]
"""

CHANGES = ["protocol.folds=10", "datasets.0.scale=unit", "learners.0=unif"]
CHANGES.append("kernels.0.gammas={base: 2, from: 1, to: 3}")


def aliases(last: bytes, inner: bytes) -> bytes:
    """A text of thirty lines that would be 9^29 values, as each line has nine aliases of the line before."""
    lines = [
        b"a%d: &a%d " % (i, i) + inner % b", ".join([b"*a%d" % (i - 1)] * 9)
        for i in range(1, 30)
    ]
    return b"\n".join([b"a0: &a0 " + last, *lines])


CONTENTS = [
    (b"", "must hold keys such as name, datasets, kernels, learners; got NoneType"),
    (
        b"- a\n- b\n",
        "must hold keys such as name, datasets, kernels, learners; got list",
    ),
    (b"name: x", "datasets: is required and missing"),
    (b"\x89PNG\r\n\x1a\n", "not UTF-8 text"),
    (b"name: \x00\n", r"is not valid YAML \(unacceptable character #x0000"),
    (b"a: [1", "is not valid YAML at line 1"),
    (
        b"a: b: c\n",
        r"is not valid YAML at line 1, column 5 \(mapping values are not allowed here",
    ),
    (b"name: 2026-99-99\n", r"at line 1, column 7 \('2026-99-99' is no timestamp"),
    (b"name: " + b"9" * 5000, r"'9+ \.\.\. 9+' is no int"),
    (b"name: !!int ''\n", r"\('' is no int"),
    (
        b"a: " + b"[" * 5000 + b"]" * 5000,
        rf"lists and mappings go more than {DEEPEST} levels deep",
    ),
    (b"a: &a [*a]\n", "an alias contains itself"),
    (aliases(b"[x]", b"[%s]"), "there are more than 100,000 values and keys"),
    (aliases(b"{x: 1}", b"{<<: [%s]}"), "there are more than 100,000 values and keys"),
    (b"a: " + b"x" * MOST_BYTES, r"cannot be read \(more than 4 MiB\)"),
    (b"name: !!python/object:os.system x\n", "could not determine a constructor"),
]

REFUSED = [
    ("kernels.0.gammas={base: 2, from: -1000000000, to: 1000000000}", "a grid has at most 1,000 numbers"),
    ("kernels.0.gammas={base: 1e300, from: 1, to: 2}", "is no positive number of a computer"),
    ("kernels.0.gammas={base: 2, from: -2000, to: -1990}", "is no positive number of a computer"),
    ("kernels.0.gammas={from: 1, to: 2, count: 1000000000}", "must be at most 1000"),
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
    ("normalize=a\\nb" + "é\u202e" * 300, "is not valid; expected 'trace', 'frobenius' or 'none'"),
    ("datasets.0={source: openml, version: 1, name: [" + "a, " * 3000 + "]}", "datasets.0"),
]  # fmt: skip


def test_what_is_no_configuration_is_refused_in_one_sentence_with_its_reason(
    tmp_path: Path,
):
    path = tmp_path / "conf.yaml"
    cases: list[tuple[bytes, tuple[str, ...], str]] = [
        (content, (), reason) for content, reason in CONTENTS
    ]
    cases += [
        (SMALL.encode(), (change,), re.escape(reason)) for change, reason in REFUSED
    ]

    def read(case: Any) -> None:
        path.write_bytes(case[0])
        load_config(path, case[1])

    failures = []
    for fate in fates(cases, read, (InputError,), seconds=20, memory=200 << 20):
        content, changes, reason = fate.case
        expected = f"^{re.escape(str(path))}: .*{reason}" if not changes else reason
        if fate.kind != "sentence" or not re.search(expected, fate.text):
            failures.append(
                f"{changes or content[:60]}: {reason}: {fate.kind}: {fate.text[-2000:]}"
            )
    assert not failures, "\n\n".join(failures)


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

    found = list(fates(range(400), read, (InputError,), seconds=30, memory=400 << 20))
    bad = [fate for fate in found if not fate.fine]
    assert not bad, "\n\n".join(
        f"{fate.case}: {fate.kind}: {fate.text[-2000:]}" for fate in bad[:5]
    )
    assert {fate.kind for fate in found} == {"done", "sentence"}
