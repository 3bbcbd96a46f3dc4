"""The figures of ``docs/scale.md`` are those that the model computes, and each says where it comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import scale_model
from benchmarks.scale_model import CRAWL, DOMAINS, FIGURES, PLACES, SHARES, planned, tables, value
from cc_pipeline.engines.spark.readiness import _crowd
from cc_pipeline.records.range_plan import Coalescing, FetchPrice, plan_ranges, price_of, price_ranges
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import limits_of

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


def test_requests_are_those_of_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    span = Coalescing().span
    # no range is longer than the planner lets it be, and most are nearly as long
    assert value("crawl_bytes") / span < CRAWL.requests < 1.05 * value("crawl_bytes") / span
    # far apart each capture is a request of its own
    assert planned(SHARES[0]).requests == pytest.approx(planned(SHARES[0]).captures, rel=0.01)
    # what the page says of how few scattered captures cost as many requests as a whole crawl
    assert planned(0.0004).requests < CRAWL.requests < planned(0.0005).requests
    assert planned(0.1).requests == pytest.approx(30 * CRAWL.requests, rel=0.05)
    for share in SHARES:
        assert planned(share).bytes >= planned(share).record_bytes
    asked = []

    def priced(captures: pa.Table) -> FetchPrice:
        asked.append(captures)
        price = price_ranges(plan_ranges(captures), captures)
        assert price == price_of(captures)
        return price

    monkeypatch.setattr(scale_model, "price_of", priced)
    assert planned.__wrapped__(0.1) == planned(0.1)
    assert asked
    # what the planner takes for one request decides: it is no figure of the model's own
    monkeypatch.setattr(scale_model, "price_of", lambda captures: price_of(captures, Coalescing(0, 1)))
    apart = planned.__wrapped__(1.0)
    assert apart.requests == apart.captures


def test_places_have_the_rates_of_the_budget_and_no_more_workers_than_doctor_advises(tmp_path: Path) -> None:
    for place, source in zip(PLACES, ("https://data.commoncrawl.org", *["s3://commoncrawl"] * 2), strict=True):
        settings = load_settings({}, source=source, home=str(tmp_path))
        assert limits_of(settings).rate == place.rate
        workers = place.cores if place.serverless else 0
        assert list(_crowd(replace(settings, spark_workers=workers))) == []


def test_requests_bound_scattered_captures_and_cores_bound_a_whole_crawl() -> None:
    at_home, host, cluster = PLACES
    for place in PLACES:
        hours = place.hours(DOMAINS)
        assert max(hours, key=hours.__getitem__) == "requests"
    assert host.hours(DOMAINS)["requests"] == cluster.hours(DOMAINS)["requests"]
    # what one process does for all cores is on the page, and which of them it can keep busy
    shown = PAGE.read_text("utf-8")
    for name in ("locate_us", "take_ms", "hand_ms"):
        assert FIGURES[name].shown in shown
    busy = (value("fetch_ms") + value("parse_ms")) / host.home_ms
    assert f"more than some {busy:.0f} cores" in " ".join(shown.split())
    # a core is a core, but for what Spark takes
    own = CRAWL.captures * FIGURES["spark_ms"].value / 3.6e6
    assert 16 * host.hours(CRAWL)["cores"] == pytest.approx(cluster.cores * cluster.hours(CRAWL)["cores"] - own)
    assert at_home.core_price() == 0
    assert cluster.dollars(DOMAINS)["cores"] > 5 * host.dollars(DOMAINS)["cores"]
