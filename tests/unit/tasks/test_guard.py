"""Who is let through to a server of the folder, request by request, and the key that programs and browsers show."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import folder_key, key_file, servers_note, show_key
from learnkernels.tasks.operate import serving
from learnkernels.tasks.operate.guard import Guard

KEY = "learnkernels:f4c1Yd-_ea91bQ7kQ0h2"
TOKEN = KEY.partition(":")[2]
HERE = "http://127.0.0.1:4200"
COOKIE = {"cookie": f"learnkernels={TOKEN}"}
PAGE = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
ORIGINS = [
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://evil.example"},
    {"origin": "https://127.0.0.1"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:4200.evil.example"},
    {"origin": "http://127.0.0.1:4200@evil.example"},
    {"origin": "http://[broken"},
    LINK | {"origin": "http://127.0.0.1:9999"},
    {"host": "evil.example"},
    {"host": "127.0.0.1:4201"},
    {"host": "127.0.0.1:4200.evil.example"},
    {"host": ""},
]
STRANGERS = [
    *ORIGINS,
    PAGE | {"sec-fetch-site": "same-site"},
    PAGE | {"sec-fetch-site": "cross-site"},
    PAGE | {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    LINK | {"sec-fetch-dest": "iframe"},
]
IMPOSTORS = [
    {},
    {"authorization": "Basic bGVhcm5rZXJuZWxzOg=="},  # no password
    {"authorization": "Basic %%%"},
    {"authorization": "Basic /////w=="},  # no text
    {"authorization": "Bearer "},
    {"authorization": f"Bearer {TOKEN[:-1]}"},
    {"cookie": "learnkernels="},
    {"cookie": f"learnkernels={TOKEN}x"},
    {"cookie": "learnkernels=\x7f; =; ["},
    {"cookie": f"other={TOKEN}"},
]
FRIENDS = [
    {"authorization": f"Bearer {TOKEN}"},
    {"authorization": f"bearer {KEY}"},
    {"authorization": f"Basic {base64.b64encode(KEY.encode()).decode()}"},
    {"cookie": f"a=1; learnkernels={TOKEN}"},
    PAGE | {"origin": HERE} | COOKIE,
    {"host": "localhost:4200", "origin": "http://localhost:4200"} | COOKIE,
]
KEPT = {"x-frame-options": "SAMEORIGIN", "cross-origin-resource-policy": "same-origin", "x-own": "1"}
"""Headers of each answer of the application, of which the first is its own no longer."""


class Application:
    """Answers every request, remembers them, and is as open as a server can be."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.said: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append((scope.get("method"), scope["path"]))
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            self.said.append(await receive())
            await send({"type": "websocket.send", "text": "secret"})
            return
        headers = [(b"Access-Control-Allow-Origin", b"*"), (b"X-Frame-Options", b"ALLOW"), (b"x-own", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"secret"})


def ask(method: str, path: str, headers: dict[str, str], **options: Any) -> tuple[httpx.Response, list[str]]:
    """What a guarded application answers, and the paths that it was asked for."""
    application = Application()
    guard = Guard(application, 4200, **{"key": KEY} | options)

    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=HERE) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(once()), [path for _, path in application.seen]


PROXY = {"host": "kernels.example", "origin": "https://kernels.example", "authorization": f"Bearer {TOKEN}"}
REQUESTS: list[tuple[str, str, dict[str, str], dict[str, Any], int]] = [
    *(
        (method, "/api/x", headers | COOKIE, {"key": key}, 403)  # with the key, too
        for headers in STRANGERS
        for method, key in (("GET", KEY), ("POST", KEY), ("OPTIONS", KEY), ("POST", None))
    ),
    *(("POST", "/api/deployments", headers, {}, 401) for headers in IMPOSTORS),
    *(("GET", "/health/../api", headers, {}, 401) for headers in IMPOSTORS),
    *(("GET", "/api/health", headers, {}, 200) for headers in IMPOSTORS),
    ("GET", "/page", LINK | COOKIE, {}, 200),  # who has the key may follow a link on another page
    ("POST", "/page", LINK | COOKIE, {}, 403),
    ("POST", "/api/x", PROXY, {}, 403),
    ("POST", "/api/x", PROXY, {"hosts": ["kernels.example"]}, 200),
    ("POST", "/api/x", {}, {"key": None}, 200),  # where the application asks for a password itself
    ("GET", "/x?key=1", {}, {"key": None}, 200),
    *(("POST", "/api/x", headers, {}, 200) for headers in FRIENDS),
]


def test_who_has_the_key_is_answered_and_of_others_the_life_sign_alone():
    failures = []
    for method, path, headers, options, status in REQUESTS:
        answer, seen = ask(method, path, headers, **options)
        answered, told = status == 200, answer.headers
        found = answer.status_code, seen, "learnkernels ui" in answer.text, answer.text == "secret"
        shown = TOKEN in answer.text or "access-control-allow-origin" in told
        kept = not answered or {name: ", ".join(told.get_list(name)) for name in KEPT} == KEPT
        if found != (status, [path.partition("?")[0]] * answered, status == 401, answered) or shown or not kept:
            failures.append((method, path, headers, options, found, told))
    assert not failures


def test_a_browser_that_is_told_the_key_is_given_a_cookie_and_the_page_without_it():
    answer, seen = ask("GET", f"/runs?a=1&key={TOKEN}&b=%C3%A9", {"sec-fetch-site": "none"})
    assert (answer.status_code, seen) == (303, [])
    assert answer.headers["location"] == "/runs?a=1&b=%C3%A9"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"learnkernels={TOKEN};")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert answer.headers["cache-control"] == "no-store"
    wrong, seen = ask("GET", "/runs?key=wrong", {})
    assert (wrong.status_code, seen, "set-cookie" in wrong.headers) == (401, [], False)
    for path in ("//evil.example/", "/%2F/evil.example", "/a%0D%0Ax: y"):  # it leads nowhere else
        location = ask("GET", f"{path}?key={TOKEN}", {})[0].headers["location"]
        assert location.startswith("/")
        assert not location.startswith("//")
        assert "\n" not in location
    # A page opened by name is opened by number, where its cookie holds.
    opened = LINK | {"host": "localhost:4200", "sec-fetch-site": "none"}
    answer, seen = ask("GET", f"/runs?key={TOKEN}", opened)
    assert (answer.status_code, answer.headers["location"], seen) == (303, f"{HERE}/runs?key={TOKEN}", [])
    assert "set-cookie" not in answer.headers


def talk(headers: dict[str, str], first: str | None) -> tuple[list[str], Application]:
    """The types of the answers on a web socket whose first message is `first`."""
    application, answers = Application(), []
    messages = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": first}])
    encoded = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:4200"} | headers).items()]

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        answers.append(message["type"])

    scope = {"type": "websocket", "path": "/api/events/out", "headers": encoded}
    asyncio.run(Guard(application, 4200, KEY)(scope, receive, send))
    return answers, application


AUTH = json.dumps({"type": "auth", "token": KEY})


def test_a_web_socket_opens_with_the_key_in_its_handshake_or_first_message_and_to_no_other_page():
    opened, closed = ["websocket.accept", "websocket.send"], ["websocket.accept", "websocket.close"]
    without_key = (None, "", "{", "[]", "{}", '{"token": 1}', '{"token": ""}', "[" * 100_000)
    table = [
        (COOKIE | {"origin": HERE}, "{}", opened),
        ({"authorization": f"Bearer {TOKEN}"}, "{}", opened),
        ({}, AUTH, opened),
        ({}, AUTH.replace(KEY, TOKEN), opened),
        *(({}, first, closed) for first in without_key),
        *((headers | COOKIE, AUTH, ["websocket.close"]) for headers in ORIGINS),
    ]
    for headers, first, expected in table:
        answers, application = talk(headers, first)
        assert answers == expected, (headers, first)
        heard = [{"type": "websocket.receive", "text": first}]
        if expected == closed:
            heard = [{"type": "websocket.disconnect", "code": 1008}]
        assert application.said == (heard if application.seen else [])
        assert bool(application.seen) == (len(answers) == 2)


def test_a_server_asks_itself_first_and_goes_on_whatever_comes_of_it():
    application, broken = Application(), Application()

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await broken(scope, receive, send)
        raise RuntimeError("no database")

    requests = [("POST", "/api/first"), ("GET", "/api/second")]
    asyncio.run(serving._ask(application, requests))
    asyncio.run(serving._ask(failing, requests))
    assert (application.seen, broken.seen) == (requests, requests[:1])


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEARNKERNELS_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_key_is_made_once_and_refused_where_it_is_damaged_or_others_have_a_hand_in_it(state: Path, tmp_path: Path):
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(lambda _: folder_key(), range(64)))
    assert keys == {key_file().read_text()}
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["key"]
    whole = folder_key()
    for damage in ("", "short", "no colon at all", "a:b", "learnkernels:" + "x" * 32 + "\n\n"):
        key_file().write_text(damage)
        with pytest.raises(InputError, match=r"^\S+/key: is no key [^\n]*this user alone[^\n]*remove it[^\n]*\.$"):
            folder_key()
    key_file().write_text(whole)
    assert folder_key() == whole
    key_file().chmod(0o644)
    with pytest.raises(InputError, match="this user alone"):
        folder_key()
    key_file().chmod(0o600)
    key_file().rename(tmp_path / "planted")
    key_file().symlink_to(tmp_path / "planted")
    with pytest.raises(InputError, match="this user alone"):
        folder_key()


KEY_SETTINGS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


@pytest.mark.parametrize(
    ("prefect", "mlflow", "shown"),
    [
        (None, "sqlite:///mlflow.db", {"PREFECT_API_AUTH_STRING"}),
        ("http://127.0.0.1:1/api", "http://127.0.0.1:2", {*KEY_SETTINGS}),
        ("http://prefect.example/api", "http://mlflow.example", set()),
        ("http://127.0.0.1:3/api", "http://127.0.0.1:1", set()),
    ],
)
def test_the_key_is_shown_to_servers_of_this_folder_alone(
    state: Path, monkeypatch: pytest.MonkeyPatch, prefect: str | None, mlflow: str, shown: set[str]
):
    folder_key()
    servers_note().write_text('{"prefect_api": "http://127.0.0.1:1/api", "mlflow": "http://127.0.0.1:2"}')
    for name in (*KEY_SETTINGS, "MLFLOW_TRACKING_TOKEN", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_URL"):
        monkeypatch.setenv(name, "")  # and back to what it was, whatever is set meanwhile
        monkeypatch.delenv(name)
    if prefect:
        monkeypatch.setenv("PREFECT_API_URL", prefect)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    show_key()
    assert {name for name in KEY_SETTINGS if name in os.environ} == shown
    assert os.environ.get("PREFECT_API_AUTH_STRING") in (folder_key(), None)
