"""The server as a program uses it: started by the library's own client, and asked over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import cc_pipeline
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.world import NEW, extract, harvested, publish

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")

pytestmark = pytest.mark.process

SITE = "example.com"


@pytest.fixture(scope="module")
def home(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp") / "home"
    workspace = harvested(bucket[0], folder)
    extract(workspace, SITE)
    publish(workspace)
    workspace.close()
    return folder


def test_a_client_looks_up_reads_queries_and_plans(bucket: tuple[Path, MiniCrawlTruth], home: Path) -> None:
    source, truth = bucket
    command = [
        sys.executable,
        "-P",
        "-c",
        "from cc_pipeline.cli import main; main()",
        "mcp",
        "--home",
        str(home),
        "--source",
        str(source),
    ]
    server = mcp.StdioServerParameters(command=command[0], args=command[1:], env={**os.environ})

    async def talk() -> None:
        async with mcp.Client(server) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"lookup", "get", "sql", "plan"}
            await ask_all(client.call_tool)

    async def ask_all(call: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> None:
        async def answer(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await call(tool, arguments)
            assert not result.is_error, result.content
            return dict(result.structured_content)

        async def error(tool: str, **arguments: Any) -> str:
            result = await call(tool, arguments)
            assert result.is_error
            return str(result.content[0].text)

        captures = truth.captures_of(NEW, subset="warc", domain=SITE)
        found = await answer("lookup", target=SITE, crawls=[NEW], limit=3)
        assert len(found["rows"]) == 3 and found["there_are_more"]
        assert {row["url"] for row in found["rows"]} <= {capture.url for capture in captures}

        (home / "list.txt").write_text("a:private\n", "utf-8")
        for target in (f"@{home / 'list.txt'}", f"set:a = @{home / 'list.txt'}", "-"):
            for refusal in (
                await error("lookup", target=target, crawls=[NEW]),
                await error("plan", targets=[SITE, target], crawls=[NEW]),
            ):
                assert "file" in refusal and "private" not in refusal

        url = next(capture.url for capture in captures if capture.kind == "html")
        assert "ask, then set yes" in await error("get", url=url, yes=False)
        page = await answer("get", url=url, yes=True, form="html", max_characters=20)
        assert page["crawl"] == NEW and len(page["html"]) == 20 < page["characters"]

        counted = await answer("sql", query="SELECT count(*) AS pages, max(fetch_time) AS newest FROM page_text")
        assert counted["rows"][0]["pages"] > 0 and counted["rows"][0]["newest"].startswith("2024-")
        values = await answer("sql", query="SELECT 'nan'::DOUBLE AS a, repeat('x', 9000)::BLOB AS b, range(9000) AS c")
        assert values["rows"] == [{"a": "nan", "b": f"b'{'x' * 1998}…", "c": [*range(100), "…"]}]
        for query in ("SELECT * FROM read_text('/etc/passwd')", "DROP TABLE captures", "COPY captures TO 'x.csv'"):
            assert await error("sql", query=query)

        assert (await answer("plan", targets=[SITE], crawls=[NEW]))["rows"] == []
        other = next(domain for domain in truth.domains(NEW) if domain != SITE)
        steps = (await answer("plan", targets=[other], crawls=[NEW]))["rows"]
        assert [row["steps"] for row in steps] == [["lookup"], ["locate", "fetch", "parse"]]
        assert "top-level domain" in await error("plan", targets=["nothing.nowhere"], crawls=[NEW])

    anyio.run(talk)


def test_the_question_for_consent_has_no_password(tmp_path: Path) -> None:
    from cc_pipeline.extensions.mcp.server import Tools  # noqa: PLC0415 - it needs the package mcp

    home = cc_pipeline.open(tmp_path, source="https://user:hidden@example.com/", quiet=True)
    with home, pytest.raises(Exception, match="ask, then set yes") as refused:
        Tools(home).get("https://example.org/", yes=False)
    assert "hidden" not in str(refused.value)
