"""Host columns against real index rows, registered domains against the list's own tests."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from cc_pipeline.commoncrawl.domains import HOST_COLUMNS, host_columns, suggest_names
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def test_columns_are_the_published_ones_in_order() -> None:
    assert tuple(name for name in INDEX_COLUMN_NAMES if name in HOST_COLUMNS) == HOST_COLUMNS


@needs_corpus
@pytest.mark.parametrize("crawl", ["CC-MAIN-2024-22", "CC-MAIN-2018-05"])
def test_every_row_of_the_real_bucket(crawl: str) -> None:
    rows = json.loads(gzip.decompress((CORPUS / "realcrawl/expected.json.gz").read_bytes()))[crawl]
    for row in rows:
        made = host_columns(row["url"])
        assert {name: made[name] for name in HOST_COLUMNS if name in row} == {
            name: row[name] for name in HOST_COLUMNS if name in row
        }


@needs_corpus
def test_the_printed_row_of_the_real_index() -> None:
    row = json.loads((CORPUS / "cc_index/extracted_vectors/whirlwind_columnar_row.json").read_text())["row"]
    made = host_columns(row["url"])
    for name in set(HOST_COLUMNS) - {"url_port"}:
        assert str(made[name]) == row[name], name


@needs_corpus
def test_the_public_suffix_lists_own_cases() -> None:
    cases = re.findall(
        r"^checkPublicSuffix\('([^']+)', (?:'([^']+)'|null)\)",
        (CORPUS / "url_surt_psl/publicsuffix/tests/test_psl.txt").read_text(),
        re.MULTILINE,
    )
    known = [
        (host, wanted) for host, wanted in cases if not host.startswith(".") and "example" not in host.rsplit(".")[-1]
    ]
    assert len(known) > 60
    for host, wanted in known:
        made = host_columns(f"http://{host.lower()}/")["url_host_private_domain"]
        expected = wanted.encode("idna").decode() if wanted else None
        assert made == expected, host


@pytest.mark.parametrize(
    ("url", "some"),
    [
        ("http://1.2.3.4:81/", {"url_host_name": "1.2.3.4", "url_host_tld": None, "url_port": 81}),
        ("http://3279880203/", {"url_host_name": "195.127.0.11", "url_host_name_reversed": None}),
        ("http://[2001:DB8::1]/", {"url_host_name": "[2001:db8::1]", "url_host_registered_domain": None}),
        ("http://localhost", {"url_host_tld": "localhost", "url_host_registry_suffix": None, "url_path": ""}),
        ("http://x.localdomain/?", {"url_host_registered_domain": None, "url_query": "", "url_path": "/"}),
        ("http://co.uk/", {"url_host_registry_suffix": "co.uk", "url_host_registered_domain": None}),
        (
            "http://a.b.github.io/x;y?a?b#c",
            {
                "url_host_registered_domain": "github.io",
                "url_host_private_domain": "b.github.io",
                "url_path": "/x;y",
                "url_query": "a?b",
            },
        ),
        ("HTTP://München.DE./", {"url_host_name": "xn--mnchen-3ya.de", "url_protocol": "http"}),
        ("https:////www.google.com/robots.txt", {"url_host_name": "www.google.com", "url_path": "/robots.txt"}),
        ("dns:www.example.com", {"url_host_name": "www.example.com", "url_protocol": "dns"}),
        ("http://u:p@example.com/", {"url_host_name": "example.com", "url_port": None}),
    ],
)
def test_odd_hosts(url: str, some: dict[str, object]) -> None:
    made = host_columns(url)
    assert {name: made[name] for name in some} == some


def test_only_a_name_that_is_not_known_is_taken_for_a_similar_one() -> None:
    known = ["example.org", "examples.org", "host:www.example.org"]
    suggested = suggest_names([*known, "exmaple.org", "other.net", "exmaple.org"], known)
    assert suggested == [*known, "exmaple.org (did you mean example.org?)", "other.net", "exmaple.org"]
