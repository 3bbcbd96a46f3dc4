"""Faults carry a kind, travel between processes whole, and a full disk is known by its number where it has one."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import sqlite3

import pytest
from deltalake.exceptions import DeltaError
from sqlalchemy.exc import OperationalError

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, disk_is_full
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, range_fault
from cc_pipeline_tests.records.reasons import REASONS


def test_the_kinds_that_records_publish_keep_their_spelling() -> None:
    published = ["not_gzip", "gzip_truncated", "gzip_corrupt", "too_large", "not_a_record", "length_mismatch"]
    assert [kind.value for kind in DataKind][:6] == published
    assert set(published) <= REASONS
    assert set(FaultKind) - {FaultKind.REFUSED} <= REASONS
    assert not set(DataKind) & set(FaultKind)


@pytest.mark.parametrize("kind", DataKind)
def test_a_data_fault_goes_through_pickle(kind: DataKind) -> None:
    fault = DataFault(kind, "a.warc.gz", 7, "is odd")
    for twin in (pickle.loads(pickle.dumps(fault)), copy.copy(fault)):
        assert type(twin) is DataFault
        assert twin.kind is kind
        assert (twin.source, twin.offset, twin.reason) == ("a.warc.gz", 7, "is odd")
        assert str(twin) == "a.warc.gz at byte 7: is odd"


@pytest.mark.parametrize("kind", FaultKind)
def test_a_range_fault_goes_through_pickle(kind: FaultKind) -> None:
    fault = range_fault(kind, "a.warc.gz", 7, 100, "so it was", 3, tag="mine")
    twin = pickle.loads(pickle.dumps(fault))
    assert type(twin) is type(fault)
    assert isinstance(twin, EnvironmentFault if kind in ENVIRONMENT_KINDS else DataFault)
    assert twin.kind is kind
    assert (twin.key, twin.offset, twin.length, twin.detail, twin.attempts, twin.tag) == (
        "a.warc.gz", 7, 100, "so it was", 3, "mine",
    )  # fmt: skip
    assert str(twin) == str(fault)


def test_an_environment_fault_goes_through_pickle() -> None:
    twin = pickle.loads(pickle.dumps(EnvironmentFault("no network", "Wait.")))
    assert (twin.problem, twin.advice, str(twin)) == ("no network", "Wait.", "no network\nWait.")


def full_database() -> sqlite3.Error:
    with sqlite3.connect(":memory:") as db:
        db.execute("pragma max_page_count = 2")
        db.execute("create table t (x)")
        with pytest.raises(sqlite3.OperationalError) as caught:
            db.execute("insert into t values (zeroblob(100000))")
    return caught.value


def wrapped(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (OSError(errno.EACCES, "No space left, it says, but the number says otherwise"), False),
        (full_database(), True),
        (OperationalError("insert …", {}, full_database()), True),
        (OperationalError("insert …", {}, sqlite3.OperationalError("no such table: t")), False),
        (wrapped(RuntimeError("could not write"), OSError(errno.ENOSPC, "words")), True),
        # what the Delta library says, which has no number
        (DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"), True),
        (OSError("Generic LocalFileSystem error: Unable to write: No space left on device (os error 28)"), True),
        (DeltaError("Generic LocalFileSystem error: Permission denied (os error 13)"), False),
    ],
)
def test_a_full_disk_is_told_from_other_trouble(error: Exception, full: bool) -> None:
    assert disk_is_full(error) is full


def test_a_fault_that_quotes_another_is_one_line_and_its_advice() -> None:
    inner = EnvironmentFault("no network", "Wait.")
    outer = EnvironmentFault(f"the list could not be read ({inner})", "Check the source.")
    assert str(outer) == "the list could not be read (no network. Wait.)\nCheck the source."
