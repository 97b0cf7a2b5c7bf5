"""Sentences are one line of some length, and show no passwords in whatever form an address holds them."""

import string
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from learnkernels.conf.errors import LONGEST, InputError, cut, listed, one_line, short, without_passwords
from tools.mutations import is_sentence

ADDRESSES = {
    "postgresql://ann:secret@db:5432/mlflow": "postgresql://db:5432/mlflow",
    "postgresql://ann:pa/ss@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:pa?s#s@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:12345/6@db/mlflow": "postgresql://db/mlflow",
    "postgresql://:secret@db/mlflow": "postgresql://db/mlflow",
    "postgresql://ann:p@ss@db/mlflow": "postgresql://db/mlflow",
    "postgresql+psycopg2://ann:p%40ss@/mlflow?host=/run": "postgresql+psycopg2:///mlflow?host=/run",
    "mysql://db/x?user=ann&password=s3cret&ssl=1": "mysql://db/x?user=ann&password=***&ssl=1",
    "mysql://db/x?pass%77ord=s3cret": "mysql://db/x?pass%77ord=***",
    "mssql:///?odbc_connect=PWD%3Ds3cret": "mssql:///?odbc_connect=***",
    "host=db password='a b' dbname=x": "host=db password=*** dbname=x",
    "https://host/page?token=abc&id=3": "https://host/page?token=***&id=3",
    "s3://AKIA123:abc/def+g@bucket/key.csv": "s3://bucket/key.csv",
    "s3://bucket/key?X-Amz-Signature=abc&X-Amz-Credential=d": "s3://bucket/key?X-Amz-Signature=***&X-Amz-Credential=***",
    "s3://bucket/k?access_key=AKIA&secret_key=abc": "s3://bucket/k?access_key=***&secret_key=***",
    "http://ann:se:cret@host/path@x": "http://host/path@x",
    "cannot reach https://ann@host: refused": "cannot reach https://host: refused",
    "sqlite:////home/ann@work/mlflow.db": "sqlite:////home/ann@work/mlflow.db",
    "http://127.0.0.1:5000": "http://127.0.0.1:5000",
    "http://127.0.0.1:5000/#/a@b": "http://127.0.0.1:5000/#/a@b",
    "set kernels=3 and tokens apart: a@b": "set kernels=3 and tokens apart: a@b",
}  # fmt: skip
"""What a sentence may hold, and what of it is shown."""


def test_users_and_passwords_are_left_out():
    for address, shown in ADDRESSES.items():
        assert without_passwords(address) == shown
        assert str(InputError(f"{address} cannot be used.")).startswith(shown)


PASSWORDS = st.text(string.ascii_letters + string.digits + "/:@?&#%=+;,.!$'()*[]~|-_", min_size=8, max_size=24)
MARK = "Zq7Zq7"
SCHEMES = ("postgresql", "mysql+pymysql", "mssql+pyodbc", "s3", "http")


@given(PASSWORDS, PASSWORDS, st.booleans(), st.sampled_from(SCHEMES))
def test_no_form_of_a_password_is_left(before: str, after: str, encoded: bool, scheme: str):
    password = f"{before}{MARK}{after}"
    if not encoded and scheme == "http":
        before = before.replace("@", "").lstrip(string.digits)  # what follows is a path there, and a number a port
        password = f"{before}{MARK}"
    written = quote(password, safe="") if encoded else password
    assert MARK not in without_passwords(f"cannot open {scheme}://ann:{written}@db.example/mlflow?a=b: refused")
    query = f"{scheme}://db.example/mlflow?ssl=1&password={quote(password, safe='')}"
    assert MARK not in without_passwords(query)
    if scheme != "http" and encoded:
        assert make_url(f"{scheme}://ann:{written}@db.example/mlflow").password == password


def test_a_sentence_is_one_line_and_keeps_its_end():
    sentence = str(InputError("data set " + "x" * 5000 + " is\n\x00\u202e wrong;\n  rename it."))
    assert is_sentence(sentence)
    assert len(sentence) == LONGEST
    assert sentence.endswith(r"is \x00\u202e wrong; rename it.")


def test_a_value_of_any_length_is_shown_in_short():
    nested, large = {"a": {"b": list(range(5000))}}, 1 << 100_000
    for value in ("x" * 5000, "a\nb", "\udc80", ["a" * 5000] * 5000, nested, large, 10.0, None, b"x" * 999):
        shown = short(value)
        assert len(shown) <= 62
        assert shown.isprintable()
    assert [short(value) for value in ("a b", 3, 0.5, ["a", 1], None)] == ["'a b'", "3", "0.5", "['a', 1]", "None"]
    assert one_line(" a\n b ") == "a b"
    assert cut("abcdef", 6) == "abcdef"
    assert listed(["a" * 100] * 50).endswith(" and 47 more")
