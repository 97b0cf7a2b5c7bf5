"""Who is let through to a server of the folder, request by request."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest

from learnkernels.tasks.operate.guard import Guard

KEY = "learnkernels:f4c1Yd-_ea91bQ7kQ0h2"
TOKEN = KEY.partition(":")[2]
HERE = "http://127.0.0.1:4200"
PAGE = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
STRANGERS = [
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://evil.example"},
    {"origin": "https://127.0.0.1"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:4200.evil.example"},
    {"origin": "http://127.0.0.1:4200@evil.example"},
    {"origin": "http://[broken"},
    PAGE | {"sec-fetch-site": "same-site"},
    PAGE | {"sec-fetch-site": "cross-site"},
    PAGE | {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    LINK | {"sec-fetch-dest": "iframe"},
    LINK | {"origin": "http://127.0.0.1:9999"},
    {"host": "evil.example"},
    {"host": "127.0.0.1:4201"},
    {"host": "127.0.0.1:4200.evil.example"},
    {"host": ""},
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


class Application:
    """Answers every request, remembers them, and is as open as a server can be."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.said: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["path"])
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
    application = Application()
    guard = Guard(application, 4200, **{"key": KEY} | options)

    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=HERE) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(once()), application.seen


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("headers", STRANGERS, ids=str)
def test_pages_of_other_places_are_refused_with_the_key_too(method: str, headers: dict[str, str]):
    for key in (KEY, None):
        answer, seen = ask(method, "/api/x", headers | {"cookie": f"learnkernels={TOKEN}"}, key=key)
        assert (answer.status_code, seen) == (403, [])
        assert "access-control-allow-origin" not in answer.headers


def test_a_link_on_another_page_may_be_followed_by_who_has_the_key():
    link = LINK | {"cookie": f"learnkernels={TOKEN}"}
    assert ask("GET", "/page", link)[0].status_code == 200
    assert ask("POST", "/page", link)[0].status_code == 403


@pytest.mark.parametrize("headers", IMPOSTORS, ids=str)
def test_without_the_key_nothing_but_the_life_sign_is_answered(headers: dict[str, str]):
    answer, seen = ask("POST", "/api/deployments", headers)
    assert (answer.status_code, seen) == (401, [])
    assert "learnkernels ui" in answer.text
    assert TOKEN not in answer.text
    assert ask("GET", "/health/../api", headers)[0].status_code == 401
    assert ask("GET", "/api/health", headers)[0].status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer {KEY}"},
        {"authorization": f"Basic {base64.b64encode(KEY.encode()).decode()}"},
        {"cookie": f"a=1; learnkernels={TOKEN}"},
        PAGE | {"origin": HERE, "cookie": f"learnkernels={TOKEN}"},
        {"host": "localhost:4200", "origin": "http://localhost:4200", "cookie": f"learnkernels={TOKEN}"},
    ],
    ids=str,
)
def test_with_the_key_an_answer_is_kept_to_its_own_pages(headers: dict[str, str]):
    answer, seen = ask("POST", "/api/x", headers)
    assert (answer.status_code, answer.text, seen) == (200, "secret", ["/api/x"])
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers.get_list("x-frame-options") == ["SAMEORIGIN"]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-own"] == "1"


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


@pytest.mark.parametrize("path", ["//evil.example/", "/%2F/evil.example", "/a%0D%0Ax: y"])
def test_the_way_to_the_page_leads_nowhere_else(path: str):
    location = ask("GET", f"{path}?key={TOKEN}", {})[0].headers["location"]
    assert location.startswith("/")
    assert not location.startswith("//")
    assert "\n" not in location


def test_a_proxy_may_call_by_its_own_name():
    headers = {"host": "kernels.example", "origin": "https://kernels.example", "authorization": f"Bearer {TOKEN}"}
    assert ask("POST", "/api/x", headers)[0].status_code == 403
    assert ask("POST", "/api/x", headers, hosts=["kernels.example"])[0].status_code == 200


def test_a_page_opened_by_name_is_opened_by_number_where_its_cookie_holds():
    opened = LINK | {"host": "localhost:4200", "sec-fetch-site": "none"}
    answer, seen = ask("GET", f"/runs?key={TOKEN}", opened)
    assert (answer.status_code, answer.headers["location"], seen) == (303, f"{HERE}/runs?key={TOKEN}", [])
    assert "set-cookie" not in answer.headers


def test_where_the_application_asks_itself_the_guard_does_not():
    assert ask("POST", "/api/x", {}, key=None)[0].status_code == 200
    assert ask("GET", "/x?key=1", {}, key=None)[0].status_code == 200


def talk(headers: dict[str, str], first: str | None) -> tuple[list[dict[str, Any]], Application]:
    """What is answered on a web socket whose first message is `first`."""
    application, answers = Application(), []
    messages = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": first}])
    encoded = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:4200"} | headers).items()]

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "websocket", "path": "/api/events/out", "headers": encoded}
    asyncio.run(Guard(application, 4200, KEY)(scope, receive, send))
    return answers, application


AUTH = json.dumps({"type": "auth", "token": KEY})


@pytest.mark.parametrize(
    ("headers", "first"),
    [
        ({"cookie": f"learnkernels={TOKEN}", "origin": HERE}, "{}"),
        ({"authorization": f"Bearer {TOKEN}"}, "{}"),
        ({}, AUTH),
        ({}, AUTH.replace(KEY, TOKEN)),
    ],
    ids=str,
)
def test_a_web_socket_opens_with_the_key_in_its_handshake_or_first_message(headers: dict[str, str], first: str):
    answers, application = talk(headers, first)
    assert [one["type"] for one in answers] == ["websocket.accept", "websocket.send"]
    assert application.said == [{"type": "websocket.receive", "text": first}]


@pytest.mark.parametrize("first", [None, "", "{", "[]", "{}", '{"token": 1}', '{"token": ""}', "[" * 100_000])
def test_a_web_socket_without_the_key_says_nothing(first: str | None):
    answers, application = talk({}, first)
    assert [one["type"] for one in answers] == ["websocket.accept", "websocket.close"]
    assert application.said == [{"type": "websocket.disconnect", "code": 1008}]


@pytest.mark.parametrize("headers", [one for one in STRANGERS if "origin" in one or "host" in one], ids=str)
def test_a_web_socket_of_another_page_is_refused_before_it_opens(headers: dict[str, str]):
    answers, application = talk(headers | {"cookie": f"learnkernels={TOKEN}"}, AUTH)
    assert [one["type"] for one in answers] == ["websocket.close"]
    assert application.seen == []
