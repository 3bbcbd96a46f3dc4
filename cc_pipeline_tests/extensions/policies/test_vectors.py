"""Google's conformance cases for RFC 9309, and real files beside Google's own matcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import robotstxt

from cc_pipeline.extensions.policies.robots import parse_robots
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.extensions.policies.asked import verdicts

ROBOTS: Final = CORPUS / "robots"
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "b": 8}
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_FIELD = re.compile(rf"(\w+)\s*:\s*((?:{_QUOTED}\s*)+|\w+)|(\}})")
#: Where RFC 9309 says otherwise: octets are escaped before they are compared, and escapes of unreserved ones are taken
#: away (2.2.2). The cases leave that to the caller.
FOLLOWS_THE_RFC: Final = {
    ("non-ascii-paths.textproto", "http://foo.bar/foo/bar/\u30c4"),
    ("non-ascii-paths.textproto", "http://foo.bar/foo/bar/baz"),
}


@dataclass(frozen=True, slots=True)
class Case:
    file: str
    body: bytes
    url: str
    agent: str
    allowed: bool
    googles: bool


def cases(path: Path) -> Iterator[Case]:
    """The cases of a file in protocol buffers' text format, as far as these files use it."""
    body, fields = b"", {}
    for name, value, end in _FIELD.findall(re.sub(r"^\s*#.*$", "", path.read_text("utf-8"), flags=re.M)):
        if end:
            if "testurl" in fields:
                yield Case(
                    path.name,
                    body,
                    unquoted(fields["testurl"]).decode(),
                    unquoted(fields["useragent"]).decode(),
                    fields["expected_outcome"] == "ALLOWED",
                    fields.get("test_type") == "GOOGLE_SPECIFIC",
                )
            fields = {}
        elif name == "robotstxt":
            body = unquoted(value)
        else:
            fields[name] = value


def unquoted(text: str) -> bytes:
    found = bytearray()
    for part in re.findall(_QUOTED, text):
        for escape, plain in re.findall(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)|([^\\]+)", part[1:-1]):
            if plain:
                found += plain.encode()
            elif escape[0] == "x" and len(escape) > 1:
                found.append(int(escape[1:], 16))
            elif escape.isdigit():
                found.append(int(escape, 8))
            else:
                found.append(_ESCAPES.get(escape, ord(escape)))
    return bytes(found)


@needs_corpus
def test_googles_cases() -> None:
    every = [case for path in sorted((ROBOTS / "ctc_correctness").glob("*.textproto")) for case in cases(path)]
    assert (len(every), sum(case.googles for case in every)) == (146, 22)
    bodies = list(dict.fromkeys(case.body for case in every))
    found = verdicts(bodies, [(bodies.index(case.body), case.url, case.agent) for case in every])
    wrong = [case for case, one in zip(every, found, strict=True) if (one["access"] == "allow") != case.allowed]
    assert {(case.file, case.url) for case in wrong if not case.googles} == FOLLOWS_THE_RFC
    # index.html for a folder is Google's own
    assert {case.file for case in wrong if case.googles} == {"index-page.textproto"}


@needs_corpus
@pytest.mark.parametrize("part", range(10))
def test_real_files_beside_googles_matcher(part: int) -> None:
    """A tenth of the files at a time: each rule's own path for robots that are named, and for one that is not."""
    files = sorted((ROBOTS / "real").iterdir())[part::10]
    assert len(files) >= 30
    bodies = [path.read_bytes() for path in files]
    asked = [(number, url, agent) for number, body in enumerate(bodies) for url, agent in questions(body)]
    matcher = robotstxt.RobotsMatcher()
    texts = [body.decode("utf-8", "replace").removeprefix("\ufeff") for body in bodies]
    theirs = [matcher.is_allowed(texts[number], agent, url) for number, url, agent in asked]
    ours = [one["access"] == "allow" for one in verdicts(bodies, asked)]
    assert 0 < sum(theirs) < len(theirs)
    assert [one for one, a, b in zip(asked, ours, theirs, strict=True) if a != b] == []


def questions(body: bytes) -> Iterator[tuple[str, str]]:
    lines = parse_robots(body)
    # Google takes letters, - and _ for a token, and so none of MJ12bot; and an empty query for none
    agents = {agent for line in lines for agent in line.agents if re.fullmatch(r"[a-z_-]+", agent)}
    split = {
        line.split(b":")[1].split()[0].lower() for line in body.splitlines() if re.match(rb"(?i)user-agent:\s*\S", line)
    }
    clean = sorted(agent for agent in agents if agent.encode() in split)[:4]
    paths = dict.fromkeys(line.path.rstrip("$").replace("*", "x1/y") for line in lines if line.path)
    for path in ["/", "/index.php?a=b", *list(paths)[:25]]:
        url = "http://h.example" + (path if path.startswith("/") else "/" + path)
        for agent in [*clean, "SomeBot"]:
            yield from ((one, agent) for one in (url, url + "more.html") if not one.endswith("?"))
