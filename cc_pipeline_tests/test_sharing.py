"""What goes to one worker, and what is begun first."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline_tests.sharing import LONGEST

HERE = Path(__file__).parent


def test_all_that_is_named_is_there() -> None:
    sources = [path.read_text("utf-8") for path in HERE.rglob("*.py") if path.name != "sharing.py"]
    for name in LONGEST:
        folder, _, rest = name.partition("/")
        if folder == "extensions" and not (HERE / folder / rest.partition("/")[0]).exists():
            # an extension may be deleted with its tests
            continue
        assert (HERE / name).is_file() if name.endswith(".py") else any(f'"{name}"' in text for text in sources), name
    assert len(set(LONGEST)) == len(LONGEST)
