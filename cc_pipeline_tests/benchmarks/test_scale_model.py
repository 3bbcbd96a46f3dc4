"""The figures of ``docs/scale.md`` are those that the model computes, and each says where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale_model import CRAWL, DOMAINS, FIGURES, PLACES, tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"


def test_the_page_shows_what_the_model_computes() -> None:
    shown = PAGE.read_text("utf-8")
    for table in tables().split("\n\n"):
        assert table in shown, "put what python -m benchmarks.scale_model prints into docs/scale.md"


def test_every_figure_says_what_it_is() -> None:
    for figure in FIGURES.values():
        assert figure.kind in ("measured", "published", "assumed")
        assert figure.source
        assert figure.value > 0


def test_requests_bound_scattered_captures_and_cores_bound_a_whole_crawl() -> None:
    at_home, host, cluster = PLACES
    for place in PLACES:
        hours = place.hours(DOMAINS)
        assert max(hours, key=hours.__getitem__) == "requests"
    assert host.hours(DOMAINS)["requests"] == cluster.hours(DOMAINS)["requests"]
    # a core is a core, but for what Spark takes
    own = CRAWL.captures * FIGURES["spark_ms"].value / 3.6e6
    assert 16 * host.hours(CRAWL)["cores"] == pytest.approx(256 * cluster.hours(CRAWL)["cores"] - own)
    assert at_home.core_price() == 0
    assert cluster.dollars(DOMAINS)["cores"] > 10 * host.dollars(DOMAINS)["cores"]
