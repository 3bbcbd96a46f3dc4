"""Bytes are judged by what the index promised, and nothing they hold makes the judge fall over."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import re
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.records.schema import DIGEST_CHECKS
from cc_pipeline.records.verification import ExpectedRecord, expected_record, verify_record
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.faultbodies import bit_flip, error_xml, garbage, truncated_gzip, wrong_target
from cc_pipeline_tests.records.planned import html_record
from cc_pipeline_tests.records.reasons import REASONS

URL = "https://example.com/page?b=1"
BODY = b"<html>" + bytes(range(256)) * 8
MEMBER = html_record(URL, BODY)
PROMISE = ExpectedRecord("warc", "x.warc.gz", 7, len(MEMBER), URL, surt_key(URL), sha1_base32(BODY))
ARC = b"http://example.com/ 1.2.3.4 20120208213013 text/html %d\nHTTP/1.0 200 OK\r\n\r\nhello\n"
ARC = ARC % (len(ARC) - ARC.index(b"\n") - 1)
ARC_PROMISE = dataclasses.replace(
    PROMISE, archive_format="arc", url="http://example.com/", surtkey="com,example)/", digest=None
)


def warc(header: bytes, block: bytes = b"") -> bytes:
    return gzip.compress(b"WARC/1.0\r\nWARC-Type: response\r\n" + header + b"\r\n\r\n" + block, mtime=0)


def test_a_good_record_passes_with_its_exact_member() -> None:
    found = verify_record(MEMBER, PROMISE)
    assert (found.reason, found.digest_check, found.detail) == (None, "match", None)
    assert found.member == MEMBER
    assert found.content == gzip.decompress(MEMBER)
    assert found.record is not None
    assert found.record.payload == BODY


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_body"),
        (garbage(MEMBER), "not_gzip"),
        (error_xml("SlowDown"), "not_gzip"),
        (MEMBER[:-9], "gzip_truncated"),
        (MEMBER[:100], "gzip_truncated"),
        (bit_flip(MEMBER), "gzip_corrupt"),
        (truncated_gzip(MEMBER), "gzip_corrupt"),
        (wrong_target(MEMBER), "wrong_target"),
        (gzip.compress(b"hello", mtime=0), "not_a_record"),
        (gzip.compress(gzip.decompress(MEMBER)[:-300], mtime=0), "length_mismatch"),
        (gzip.compress(b"WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 0\r\n\r\n\r\n\r\n", mtime=0), "wrong_type"),
        # bytes with the words of another fault
        (gzip.compress(b"HTTP declares nothing", mtime=0), "not_a_record"),
        (warc(b"Content-Length: declares"), "not_a_record"),
        (warc(b"Content-Length: 9", b"cut off"), "length_mismatch"),
        (MEMBER[:2] + b"\x07 cut off, inflates beyond", "gzip_corrupt"),
        (MEMBER[:2], "gzip_truncated"),
        (b"cut off, declares, inflates beyond", "not_gzip"),
    ],
)
def test_each_kind_of_damage_is_named(data: bytes, reason: str) -> None:
    found = verify_record(data, PROMISE)
    # where a deflate stream breaks is chance: it may end early or turn to nonsense
    assert found.reason == reason or {found.reason, reason} <= {"gzip_corrupt", "gzip_truncated"}
    assert found.reason in REASONS
    assert found.detail


def test_bytes_behind_the_member_are_left_out_and_noted() -> None:
    found = verify_record(MEMBER + MEMBER[:50], PROMISE)
    assert found.reason is None
    assert found.member == MEMBER
    assert "50 bytes" in (found.detail or "")


@pytest.mark.parametrize("which", ["warc", "arc"])
def test_an_uncompressed_record_that_nobody_said_the_length_of_ends_where_it_says(which: str) -> None:
    plain, promise = (gzip.decompress(MEMBER), PROMISE) if which == "warc" else (ARC, ARC_PROMISE)
    promise = dataclasses.replace(promise, length=None)
    alone = verify_record(plain, promise)
    for behind in (plain, plain[:9]):
        found = verify_record(plain + behind, promise)
        assert (found.reason, found.member, found.content) == (None, plain, plain)
        assert found.record == alone.record or which == "arc"
    # in its header, before its block, within it
    for size in (30, plain.index(b"\n\r\n" if which == "warc" else b"\n") + 1, len(plain) - 12):
        assert verify_record(plain[:size], promise).is_cut_off
    # a member that was read to its end says no more
    short = verify_record(gzip.compress(plain[:-12]), promise)
    assert short.reason != "gzip_truncated" and not short.is_cut_off


def test_digests() -> None:
    wrong = "A" * 32
    assert (
        verify_record(MEMBER, dataclasses.replace(PROMISE, digest="sha1:" + sha1_base32(BODY))).digest_check == "match"
    )
    assert (
        verify_record(MEMBER, dataclasses.replace(PROMISE, digest=None)).digest_check == "match"
    )  # the record's own claim
    noted = verify_record(MEMBER, dataclasses.replace(PROMISE, digest=wrong))
    assert (noted.reason, noted.digest_check) == (None, "mismatch")
    assert wrong in (noted.detail or "")
    assert verify_record(ARC, ARC_PROMISE).digest_check == "absent"
    for unreadable in ("crc32:1234", "sha256:short"):
        assert verify_record(MEMBER, dataclasses.replace(PROMISE, digest=unreadable)).digest_check == "unchecked"


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512", "md5"])
@pytest.mark.parametrize("spell", [base64.b32encode, base64.b16encode])
def test_a_record_whose_index_was_built_here_is_compared_with_its_own_digest(
    algorithm: str, spell: Callable[[bytes], bytes]
) -> None:
    plain = gzip.decompress(MEMBER)
    [line] = re.findall(rb"WARC-Payload-Digest: [^\r]*\r\n", plain)
    row = dict.fromkeys(CAPTURE_SCHEMA.names) | {
        "crawl": "LOCAL-files", "archive_format": "warc", "warc_filename": "x", "warc_record_offset": 0, "url": URL,
        "content_digest": sha1_base32(BODY),
    }  # fmt: skip

    def check(payload: bytes, header: bytes) -> str | None:
        digest = spell(hashlib.new(algorithm, payload).digest()).strip(b"=").lower()
        declared = header.replace(b"DIGEST", algorithm.encode() + b":" + digest)
        return verify_record(gzip.compress(plain.replace(line, declared)), expected_record(row)).digest_check

    assert check(BODY, b"WARC-Payload-Digest: DIGEST\r\n") == "match"
    assert check(BODY + b"!", b"WARC-Payload-Digest: DIGEST\r\n") == "mismatch"
    assert check(BODY, b"") == "absent"


def test_a_target_may_differ_in_what_its_key_ignores() -> None:
    assert verify_record(MEMBER, dataclasses.replace(PROMISE, url="http://www.example.com/page?b=1")).reason is None
    assert verify_record(MEMBER, dataclasses.replace(PROMISE, url=None)).reason is None
    other = dataclasses.replace(PROMISE, url="https://example.com/other", surtkey="com,example)/other")
    assert verify_record(MEMBER, other).reason == "wrong_target"


def test_arc_members_and_lines() -> None:
    for data in (ARC, gzip.compress(ARC, mtime=0)):
        found = verify_record(data, ARC_PROMISE)
        assert found.reason is None, found.detail
        assert found.record is not None
        assert found.record.payload == b"hello"
    assert verify_record(b"garbage", ARC_PROMISE).reason == "not_gzip"


def test_a_bomb_takes_no_more_memory_than_the_bound() -> None:
    bomb = gzip.compress(bytes(64 << 20), 9, mtime=0)
    tracemalloc.start()
    found = verify_record(bomb, PROMISE, limit=4 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.reason == "too_large"
    assert peak < 24 << 20


@given(st.integers(0, len(MEMBER) - 1), st.integers(0, 7), st.integers(0, len(MEMBER)))
def test_no_flipped_bit_or_cut_goes_unnoticed(position: int, bit: int, length: int) -> None:
    flipped = bytearray(MEMBER)
    flipped[position] ^= 1 << bit
    for data in (bytes(flipped[:length]), bytes(flipped)):
        found = verify_record(data, PROMISE)
        assert found.reason is None or found.reason in REASONS
        assert found.digest_check is None or found.digest_check in DIGEST_CHECKS
        if found.reason is None:
            # only bytes that mean nothing may change: time, system and flags of the gzip header
            assert found.content == gzip.decompress(MEMBER)


@needs_corpus
def test_the_real_range_answer() -> None:
    folder = CORPUS / "cc_index" / "real_range_responses"
    for answer in json.loads((folder / "responses.json").read_text()):
        row = answer["index_row"]
        promise = ExpectedRecord(
            "warc",
            row["filename"],
            int(row["offset"]),
            int(row["length"]),
            row["url"],
            row["urlkey"],
            row["digest"],
        )
        found = verify_record((folder / answer["file"]).read_bytes(), promise)
        assert (found.reason, found.digest_check) == (None, "match")
        assert found.record is not None
        assert [value for name, value in found.record.record_headers if name == "WARC-Protocol"] == ["http/1.1"]
