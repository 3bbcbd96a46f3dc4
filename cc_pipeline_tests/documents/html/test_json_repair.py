"""JSON as pages write it: read where it can be, in time that grows with its length alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from cc_pipeline.documents.html import description as json_repair
from cc_pipeline.documents.html.description import repaired


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<!--\n{"a": 1}\n-->', {"a": 1}),
        ('<!-- by a plugin -->{"a": 1}', {"a": 1}),
        ('//<![CDATA[\n{"a": "x // y", "b": [1, 2,],}\n//]]>', {"a": "x // y", "b": [1, 2]}),
        ('/*<![CDATA[*/[1,/* c */ // d\n]/*]]>*/', [1]),
        ('{"a": "\\",}", /* , */ "b": [1,]};  ', {"a": '",}', "b": [1]}),
        ('{"a":"-->;"},', {"a": "-->;"}),
        ('/* c */ {"a": "/* kept */"};', {"a": "/* kept */"}),
        ('[{"a":1},//]\n{"b":2}]', [{"a": 1}, {"b": 2}]),
    ],
)  # fmt: skip
def test_what_is_no_json_goes_and_strings_stay(text: str, value: object) -> None:
    assert json.loads(repaired(text)) == value


class _Counted:
    """A pattern that counts the characters its matches cover."""

    def __init__(self, pattern: re.Pattern[str], counts: list[int]) -> None:
        self._pattern, self._counts = pattern, counts

    def match(self, text: str, at: int) -> re.Match[str] | None:
        found = self._pattern.match(text, at)
        self._counts.append(found.end() - at if found else 0)
        return found


SHAPES: dict[str, Callable[[int], str]] = {
    "cut inside an escaped string": lambda n: '{"a":"' + '<p class=\\"x\\">' * n,
    "the same with half an escape": lambda n: '{"a":"' + '\\"' * n + "\\",
    "commas before comments": lambda n: '{"a":' + ",//" * n,
    "comments that nothing ends": lambda n: '{"a":' + "/*" * n + "<!--" * n,
    "semicolons": lambda n: "; " * n,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_character_is_read_often(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    for name in ("_JSON_STRING", "_CDATA", "_LINE", "_TO_THE_END"):
        monkeypatch.setattr(json_repair, name, _Counted(getattr(json_repair, name), counts))
    text = SHAPES[shape](20_000)
    repaired(text)
    assert sum(counts) <= 2 * len(text)
