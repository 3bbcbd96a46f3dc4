"""Index files without a crawl: sorted, with one domain of known size, and footers of real size."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.index_files import generate_index_file, write_files
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import UserInputError


def test_one_domain_has_exactly_its_rows_in_one_stretch(tmp_path: Path) -> None:
    made = generate_index_file(tmp_path / "part.parquet", 30_000, 12_000, domain_rows=850, page_rows=1000)
    table = pq.read_table(made.path)
    assert table.num_rows == made.rows == 30_000 and made.row_groups == pq.read_metadata(made.path).num_row_groups == 3
    keys = table["url_surtkey"].combine_chunks()
    assert pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py()
    assert all(surt_key(url) == key for url, key in zip(table["url"].to_pylist(), keys.to_pylist(), strict=True))
    mine = pc.equal(table["url_host_registered_domain"], "example.com").combine_chunks()
    assert pc.sum(mine).as_py() == 850
    assert pc.sum(mine[made.first_row : made.first_row + 850]).as_py() == 850
    inside = [key for key in keys.to_pylist() if b"com,example)" <= key.encode() < b"com,example-"]
    assert len(inside) == 850
    assert any(key.startswith("com,example-foo)") for key in keys.to_pylist())


def test_the_file_is_of_the_newer_kind(tmp_path: Path) -> None:
    made = generate_index_file(tmp_path / "part.parquet", 5000, 5000, domain_rows=10, page_rows=500)
    metadata = pq.read_metadata(made.path)
    column = metadata.row_group(0).column(0)
    assert metadata.num_columns == 30 and column.has_column_index and column.statistics.has_min_max
    assert column.compression == "GZIP" and column.dictionary_page_offset is None
    narrow = generate_index_file(
        tmp_path / "narrow.parquet", 900, 900, domain_rows=10, columns=("warc_filename", "url_surtkey")
    )
    assert pq.read_schema(narrow.path).names == ["url_surtkey", "warc_filename"]


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    first, second = (generate_index_file(tmp_path / name, 2000, 700, domain_rows=5).path for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    other = generate_index_file(tmp_path / "c", 2000, 700, domain_rows=5, seed=2).path
    assert first.read_bytes() != other.read_bytes()


@pytest.mark.parametrize(
    "wrong", [{"domain_name": "Äpfel"}, {"domain_name": "zoo"}, {"domain_rows": 5000}, {"columns": ("nope",)}]
)
def test_what_does_not_fit_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(UserInputError):
        generate_index_file(tmp_path / "x.parquet", 1000, 1000, **wrong)


def test_footers_are_of_real_size_and_shared(tmp_path: Path) -> None:
    keys = write_files(tmp_path, 12, distinct=4)
    assert len(set(keys)) == 12 and {key.split("/part-")[0] for key in keys} == {keys[0].split("/part-")[0]}
    assert len({(tmp_path / key).stat().st_ino for key in keys}) == 4
    metadata = [pq.read_metadata(tmp_path / key) for key in keys]
    assert {entry.num_row_groups for entry in metadata} == {16}
    assert 45_000 < metadata[0].serialized_size < 75_000
