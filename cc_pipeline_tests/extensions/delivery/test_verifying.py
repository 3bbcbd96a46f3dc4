"""What stands in a place is checked against its manifests, without a home and without a source."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.delivery.manifest import manifest_name, to_json
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.extensions.delivery.delivered import CRAWL, Place, Shop, manifests


def test_verify_needs_no_home_and_works_on_a_crawls_own_folder(shop: Shop, folder: Place) -> None:
    folder.deliver(shop, shop.records())
    with Transport(str(shop.root / "place" / CRAWL)) as transport:
        moved = Place(transport, shop.root / "scratch")
        assert moved.verify().all_problems == []
        assert moved.verify().deliveries[0].key.startswith("manifest-")


def test_verify_finds_a_list_that_lies(shop: Shop, folder: Place) -> None:
    report = folder.deliver(shop, shop.records())
    home = shop.root / "place" / CRAWL
    part = report.manifest.parts[0]
    rows = pq.read_table(home / part.list.name).to_pylist()
    rows[0] |= {"url": "https://example.com/elsewhere", "url_surtkey": "com,example)/elsewhere"}
    rows[-1]["length"] -= 1
    pq.write_table(pa.Table.from_pylist(rows), home / part.list.name)
    data = (home / part.list.name).read_bytes()
    listed = replace(part.list, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    manifest = replace(report.manifest, parts=(replace(part, list=listed), *report.manifest.parts[1:]))
    (home / manifest_name(manifest.delivery)).write_bytes(to_json(manifest))
    wrong = folder.verify().all_problems
    assert any("elsewhere" in reason for reason in wrong), wrong
    assert any("cut off" in reason or "no capture has" in reason for reason in wrong)


def test_a_manifest_of_others_that_cannot_be_read_stops_a_copy(shop: Shop, folder: Place) -> None:
    records = shop.records()
    folder.deliver(shop, records)
    home = shop.root / "place" / CRAWL
    name = manifest_name("0123456789ab")
    document = json.loads((home / manifests(folder)[0].rpartition("/")[2]).read_bytes())
    for damaged in (b"", b"[]", gzip.compress(b"{}"), json.dumps(document | {"version": 99}).encode(),
                    json.dumps(document | {"parts": [{"file": {}}]}).encode()):  # fmt: skip
        (home / name).write_bytes(damaged)
        with pytest.raises(EnvironmentFault, match=name) as refused:
            folder.deliver(shop, records)
        is_newer = b'"version": 99' in damaged
        assert ("this version cannot read" in refused.value.problem) == is_newer
        assert ("another delivery in this folder is damaged" in refused.value.problem) != is_newer
        assert any(name in reason for reason in folder.verify().all_problems)
