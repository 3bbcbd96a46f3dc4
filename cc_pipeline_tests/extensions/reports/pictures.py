"""The picture of a report for the README, and the same in the dark: of a home, such as the demo's.

python -m cc_pipeline_tests.extensions.reports.pictures HOME FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from cc_pipeline.extensions.reports.page import write_report
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.browser import browsing

_SIZE = {"width": 1100, "height": 860}


def main(home: str, folder: str) -> None:
    """Makes the pictures in a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        write_report(load_settings(home=home), "example.com", page)
        with browsing(page.as_uri(), Path(folder), Path(scratch) / "failed.png") as tab:
            tab.page.set_viewport_size(_SIZE)
            for scheme in ("light", "dark"):
                tab.page.emulate_media(color_scheme=scheme)
                tab.page.goto(page.as_uri())
                tab.picture("report" if scheme == "light" else "report-dark")


if __name__ == "__main__":
    main(*sys.argv[1:])
