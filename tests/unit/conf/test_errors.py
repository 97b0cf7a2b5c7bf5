"""Sentences show no passwords, in whatever form an address holds them."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from learnkernels.conf.errors import InputError, without_passwords


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:secret@db:5432/mlflow", "postgresql://db:5432/mlflow"),
        ("postgresql://ann:pa/ss@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://ann:pa?s#s@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://ann:12345/6@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://:secret@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://ann:p@ss@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql+psycopg2://ann:p%40ss@/mlflow?host=/run", "postgresql+psycopg2:///mlflow?host=/run"),
        ("mysql://db/x?user=ann&password=s3cret&ssl=1", "mysql://db/x?user=ann&password=***&ssl=1"),
        ("mysql://db/x?pass%77ord=s3cret", "mysql://db/x?pass%77ord=***"),
        ("mssql:///?odbc_connect=PWD%3Ds3cret", "mssql:///?odbc_connect=***"),
        ("host=db password='a b' dbname=x", "host=db password=*** dbname=x"),
        ("https://host/page?token=abc&id=3", "https://host/page?token=***&id=3"),
        ("s3://AKIA123:abc/def+g@bucket/key.csv", "s3://bucket/key.csv"),
        ("s3://bucket/key?X-Amz-Signature=abc&X-Amz-Credential=d", "s3://bucket/key?X-Amz-Signature=***&X-Amz-Credential=***"),
        ("s3://bucket/k?access_key=AKIA&secret_key=abc", "s3://bucket/k?access_key=***&secret_key=***"),
        ("http://ann:se:cret@host/path@x", "http://host/path@x"),
        ("cannot reach https://ann@host: refused", "cannot reach https://host: refused"),
        ("sqlite:////home/ann@work/mlflow.db", "sqlite:////home/ann@work/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("http://127.0.0.1:5000/#/a@b", "http://127.0.0.1:5000/#/a@b"),
        ("set kernels=3 and tokens apart: a@b", "set kernels=3 and tokens apart: a@b"),
    ],
)  # fmt: skip
def test_users_and_passwords_are_left_out(address: str, shown: str):
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
