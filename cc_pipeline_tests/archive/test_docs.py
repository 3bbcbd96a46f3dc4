"""The page on archives lists every flag, in the flags' own words."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.archive import record as flags


def test_every_flag_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    words = {
        value for name, value in vars(flags).items() if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert words == set(flags.FLAGS)
    assert all(f"| `{flag}` | {meaning} |" in page for flag, meaning in flags.FLAGS.items())
