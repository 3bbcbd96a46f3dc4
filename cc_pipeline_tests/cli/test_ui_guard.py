"""The UI obeys no page but its own: requests to other names, of other sites, and changes that are no JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.cli.ui_guard import Authority, Guard, find_refusal, read_authority, serve_guarded
from cc_pipeline.defs.instance import DAGSTER_YAML
from cc_pipeline.errors import UserInputError
from cc_pipeline_tests.defs.test_dagster_process import PATIENCE_SECONDS, environment
from cc_pipeline_tests.ports import free_port

JSON = {"content-type": "application/json"}
OWN = {"host": "127.0.0.1:3000"}
NAMED = [Authority("ui.example.org", None), Authority("other.example.org", 8443)]


def refused(
    headers: dict[str, str], method: str = "GET", query: str = "", kind: str = "http", server: str = "127.0.0.1"
) -> bool:
    scope = {
        "type": kind,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "query_string": query.encode(),
        "server": (server, 3000),
    } | ({"method": method} if kind == "http" else {})
    return find_refusal(scope, NAMED) is not None


@pytest.mark.parametrize(
    "headers",
    [
        OWN,
        {"host": "localhost:3000"},
        {"host": "LOCALHOST:9999"},  # the near end of a tunnel
        {"host": "[::1]:3000"},
        {"host": "ui.example.org"},
        {"host": "other.example.org:8443"},
        OWN | {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-origin"},
        OWN | {"sec-fetch-site": "none"},
        {"host": "ui.example.org", "origin": "https://ui.example.org"},
        # a proxy that asks with a name of its own
        OWN | {"origin": "https://ui.example.org"},
        OWN | {"origin": "https://other.example.org:8443"},
        # somebody follows a link in a chat
        OWN | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    ],
)
def test_its_own_pages_and_programs_are_answered(headers: dict[str, str]) -> None:
    assert not refused(headers)
    if headers.get("sec-fetch-site") != "cross-site":
        assert not refused(headers | JSON, "POST")
        assert not refused(headers, kind="websocket")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": ""},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:3000"},
        {"host": "user@127.0.0.1"},
        {"host": "other.example.org:3000"},
        {"host": "10.0.0.7:3000"},  # not where the request came in
        OWN | {"origin": "null"},
        OWN | {"origin": "https://evil.example"},
        OWN | {"origin": "http://127.0.0.1:8888"},
        OWN | {"origin": "https://ui.example.org:8443"},
        OWN | {"origin": "https://127.0.0.1.evil.example:3000"},
        OWN | {"origin": "file://127.0.0.1:3000"},
        OWN | {"sec-fetch-site": "cross-site"},
        OWN | {"sec-fetch-site": "same-site"},
        OWN | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_other_names_and_other_sites_are_refused(headers: dict[str, str]) -> None:
    assert refused(headers)
    assert refused(headers | JSON, "POST")
    assert refused(headers, kind="websocket")


def test_a_link_changes_nothing() -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert refused(OWN | link | JSON, "POST")
    assert refused(OWN | link, query="query=mutation{x}")


def test_a_name_that_is_said_twice_is_refused() -> None:
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]}
    assert find_refusal(scope, []) is not None
    scope["headers"] = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")]
    assert find_refusal(scope, []) is not None


def test_the_address_that_a_request_came_in_at_is_its_own() -> None:
    assert not refused({"host": "10.0.0.7:3000"}, server="10.0.0.7")
    assert refused({"host": "10.0.0.8:3000"}, server="10.0.0.7")


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("application/json", False),
        ("Application/JSON; charset=utf-8", False),
        ("text/plain", True),
        ("text/plain; application/json", True),
        ("application/x-www-form-urlencoded", True),
        ("multipart/form-data; boundary=application/json", True),
        ("", True),
    ],
)
def test_what_changes_something_is_json(kind: str, wrong: bool) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert refused(OWN | {"content-type": kind}, method) is wrong
    assert refused(OWN, "POST")


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("", False),
        ("partition=mutation{x}", False),
        ("query=mutation{x}", True),
        ("query=%6Dutation%20A{x}", True),
        ("partition=a&query={version}", True),
        ("qu%65ry=mutation{", True),
    ],
)
def test_an_address_has_no_operation(query: str, wrong: bool) -> None:
    assert refused(OWN, query=query) is wrong
    assert refused(OWN | JSON, "POST", query=query) is wrong


@given(st.text(max_size=30))
def test_no_header_breaks_it_and_no_odd_name_is_ours(text: str) -> None:
    raw = text.encode("utf-8", "replace")
    for name in (b"host", b"origin"):
        headers = [(b"host", b"127.0.0.1:3000")] if name == b"origin" else []
        scope = {"type": "http", "method": "GET", "headers": [*headers, (name, raw)], "query_string": raw}
        why = find_refusal(scope, NAMED)
        said = read_authority(text)
        if name == b"host" and (said is None or said.host not in {"localhost", "127.0.0.1", "::1", "ui.example.org"}):
            assert why is not None
        if name == b"origin" and "example.org" not in text and "127.0.0.1" not in text:
            assert why is not None


def test_names_of_the_settings_have_to_be_hosts() -> None:
    with pytest.raises(UserInputError, match="CC_PIPELINE_UI_HOSTS: https://ui"):
        Guard("http://127.0.0.1:1", ("https://ui.example.org",))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a guard, on a webserver without code."""
    folder, port = tmp_path_factory.mktemp("webserver"), free_port()
    (folder / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    env = environment(Path("unused"), folder) | {"DAGSTER_HOME": str(folder)}
    with serve_guarded(port, ["ui.example.org"]) as inner, (folder / "log").open("wb") as log:
        assert inner.host.startswith("127.")
        command = [sys.executable, "-m", "dagster_webserver", "-h", inner.host, "-p", str(inner.port)]
        process = subprocess.Popen([*command, "--empty-workspace"], cwd=folder, env=env, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while status(port, "GET /server_info") != 200:
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text("utf-8")
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserInputError, match=f"the port {port} cannot be used"), serve_guarded(port, []):
            pytest.fail("it serves nothing")


def status(port: int, request: str, body: str = "", **headers: str) -> int:
    return answer(port, request, body, **headers)[0]


def answer(port: int, request: str, body: str = "", **headers: str) -> tuple[int, str]:
    """The status of an answer, 0 where there is none, and all of it."""
    lines = {"host": f"127.0.0.1:{port}", "connection": "close", "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
            link.sendall(f"{request} HTTP/1.1\r\n{head}\r\n{body}".encode())
            said = b""
            while more := link.recv(65536):
                said += more
                if b"101 Switching" in said:
                    break
    except OSError:
        return 0, ""
    return int(said.split(b" ", 2)[1]) if said else 0, said.decode("utf-8", "replace")


@pytest.mark.process
@pytest.mark.xdist_group("dagster_process")
def test_a_real_webserver_refuses_what_is_not_its_own(served: int) -> None:
    asked = json.dumps({"query": "{version}"})
    foreign = {"origin": "https://evil.example"}
    assert '"version"' in answer(served, "POST /graphql", asked, content_type="application/json")[1]
    own = f"http://127.0.0.1:{served}"
    assert status(served, "POST /graphql", asked, content_type="application/json", origin=own) == 200
    assert status(served, "GET /", host="ui.example.org") == 200
    assert "x-frame-options: sameorigin" in answer(served, "GET /")[1].lower()
    for request, body, headers in (
        ("GET /server_info", "", {"host": "evil.example"}),
        ("GET /", "", foreign),
        ("POST /graphql", asked, {"content_type": "text/plain"}),
        ("POST /graphql", asked, {"content_type": "application/json"} | foreign),
        ("GET /graphql?query=mutation{reloadWorkspace{__typename}}", "", {}),
        ("POST /report_asset_materialization/a", "", {}),
    ):
        assert status(served, request, body, **headers) == 403, (request, headers)
    upgrade = {
        "connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_protocol": "graphql-ws",
    }  # fmt: skip
    assert status(served, "GET /graphql", **upgrade, origin=own) == 101
    assert status(served, "GET /graphql", **upgrade, **foreign) == 403
