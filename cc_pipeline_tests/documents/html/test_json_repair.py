"""JSON as pages write it: read where it can be, in time that grows with its length alone."""

from __future__ import annotations

import json

import pytest

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
