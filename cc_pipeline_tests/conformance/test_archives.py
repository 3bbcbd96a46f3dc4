"""Every file of records after a report, through every reader of files."""

from __future__ import annotations

import pytest

from cc_pipeline_tests.conformance.framing import ARCHIVE_READERS, ARCHIVES, BY_RECORD_READERS, Archive


@pytest.mark.parametrize("archive", ARCHIVES, ids=str)
def test_records_and_faults(archive: Archive) -> None:
    readers = ARCHIVE_READERS | (BY_RECORD_READERS if archive.is_by_record else {})
    found = {name: read(archive) for name, read in readers.items()}
    assert found == dict.fromkeys(readers, (archive.urls, archive.faults))
