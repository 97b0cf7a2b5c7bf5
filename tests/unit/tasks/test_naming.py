"""Names that become files and folders."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from learnkernels.tasks.naming import file_name


def test_a_name_leads_nowhere_else():
    files = {
        "quickstart": "quickstart", "my experiment-1.0": "my experiment-1.0", "été": "été", "..": "%2E%2E",
        "../../x": "..%2F..%2Fx", "/etc/x": "%2Fetc%2Fx", "a\\b\n": "a%5Cb%0A",
    }  # fmt: skip
    assert {name: file_name(name) for name in files} == files


@given(st.text(min_size=1))
def test_any_name_is_one_of_a_file_in_the_folder(name: str):
    path = (Path("/folder") / file_name(name)).resolve()
    assert path.parent == Path("/folder")
    assert "\0" not in path.name
