"""What of an address may be shown, and what lets somebody in."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from cc_pipeline.addresses import NO_ACCESS, Access, holds_access, redact_address, redact_addresses, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings, load_settings, normalise_root
from cc_pipeline.stores.answer import NoAnswer, S3Options
from cc_pipeline.stores.opening import open_store
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import judge_status
from cc_pipeline.workspace.claim import claim_home


@pytest.mark.parametrize(
    ("address", "bare", "access"),
    [
        ("https://h/x", "https://h/x", NO_ACCESS),
        ("https://u:p@h:8/x/", "https://h:8/x/", Access("u", "p")),
        ("https://u@h", "https://h", Access("u")),
        ("https://u:a%2Fb%40c@h", "https://h", Access("u", "a/b@c")),
        ("https://h/x?token=a%2Fb==", "https://h/x", Access(query="token=a%2Fb==")),
        ("https://u:p@[::1]:9/x?q", "https://[::1]:9/x", Access("u", "p", "q")),
        ("s3://bucket/a@b", "s3://bucket/a@b", NO_ACCESS),
        ("/folder/u:p@h", "/folder/u:p@h", NO_ACCESS),
        ("file:///a?b@c#d", "file:///a?b@c#d", NO_ACCESS),
    ],
)
def test_an_address_is_taken_apart(address: str, bare: str, access: Access) -> None:
    assert split_access(address) == (bare, access)


@pytest.mark.parametrize(
    "address",
    [
        "https://u:secret/x@h/",
        "https://u:secret?x@h/",
        "https://u:secret#x@h/",
        "https://u:12/secret@h/",
        "https://u:secret",
        "https://secret@[::1",
        "https:/u:secret@h/",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?secret",
        "ftp://u:secret@h/",
    ],
)
def test_what_is_unclear_is_neither_taken_nor_shown(address: str, tmp_path: Path) -> None:
    assert "secret" not in redact_address(address)
    assert "secret" not in redact_addresses(f"cannot reach '{address}' or {address}") or "://" not in address
    for use in (normalise_root, open_store, lambda text: load_settings({"HOME": str(tmp_path)}, source=text)):
        if "://" not in address and use is open_store:
            continue
        with pytest.raises(UserInputError) as raised:
            use(address)
        assert "secret" not in str(raised.value)


def test_access_shows_nothing_of_itself(tmp_path: Path) -> None:
    address = "https://u:secret@h/x?token=other"
    settings = load_settings({"CC_PIPELINE_SOURCE": address, "CC_PIPELINE_HOME": str(tmp_path)})
    with Transport(address) as transport:
        for thing in (
            settings,
            settings.source_access,
            transport.source,
            transport.store.url("k"),
            split_access(address),
        ):
            assert "secret" not in repr(thing) + str(thing)
            assert "other" not in repr(thing) + str(thing)
        assert transport.store.url("a b") == "https://h/x/a%20b"
    assert settings.source == "https://h/x"
    assert settings.source_access == settings.collinfo_access == Access("u", "secret", "token=other")
    pair = base64.b64encode(b"u:secret").decode()
    assert settings.source_access.headers == {"Authorization": f"Basic {pair}"}
    assert NO_ACCESS.headers == {}
    assert not NO_ACCESS


def _settings(home: Path, **variables: str) -> Settings:
    return load_settings({"CC_PIPELINE_HOME": str(home), "HOME": str(home)} | variables)


def test_credentials_go_to_the_place_they_are_for(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine a.example login n password m\ndefault login d password e\n")
    given = {"CC_PIPELINE_SOURCE_USER": "u", "CC_PIPELINE_SOURCE_PASSWORD": "p"}
    netrc, variables = Access("n", "m"), Access("u", "p")
    for source, extra, wanted in (
        ("https://a.example", {}, netrc),
        ("https://a.example", given, variables),
        ("https://x:y@a.example", given, Access("x", "y")),
        ("https://a.example.evil", {}, NO_ACCESS),
        ("https://data.commoncrawl.org", given, NO_ACCESS),
        ("s3://a.example", given, NO_ACCESS),
        (str(tmp_path), given, NO_ACCESS),
    ):
        settings = _settings(tmp_path, CC_PIPELINE_SOURCE=source, **extra)
        assert settings.source_access == wanted, source
    for collinfo, wanted in (
        ("https://a.example/list/collinfo.json", variables),
        ("https://a.example:8443/collinfo.json", netrc),
        ("http://b.example/collinfo.json", NO_ACCESS),
        ("https://x:y@b.example/collinfo.json?z", Access("x", "y", "z")),
        ("https://index.commoncrawl.org/collinfo.json", NO_ACCESS),
    ):
        settings = _settings(tmp_path, CC_PIPELINE_SOURCE="https://a.example", CC_PIPELINE_COLLINFO=collinfo, **given)
        assert settings.collinfo_access == wanted, collinfo
        assert settings.collinfo == redact_address(collinfo)


def test_a_netrc_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("machine a.example login n s3cret\n")
    with pytest.raises(EnvironmentFault, match="odd") as raised:
        _settings(tmp_path, CC_PIPELINE_SOURCE="https://a.example", NETRC=str(tmp_path / "odd"))
    assert "s3cret" not in f"{raised.value} {raised.value.advice}"


@pytest.mark.parametrize("name", ["S3_ENDPOINT", "LAKE_ENDPOINT", "LAKE"])
def test_s3_takes_no_credentials_in_an_address(tmp_path: Path, name: str) -> None:
    address = "s3://u:secret@bucket" if name == "LAKE" else "http://u:secret@127.0.0.1:9"
    with pytest.raises(UserInputError) as raised:
        _settings(tmp_path, CC_PIPELINE_SOURCE="s3://b", **{f"CC_PIPELINE_{name}": address})
    assert "secret" not in str(raised.value)
    with pytest.raises(UserInputError) as raised:
        open_store("s3://b", s3=S3Options(endpoint="http://u:secret@127.0.0.1:9"))
    assert "secret" not in str(raised.value)


def test_a_home_is_the_same_with_other_credentials_and_its_note_private(tmp_path: Path) -> None:
    note = tmp_path / "home.json"
    claim_home(_settings(tmp_path, CC_PIPELINE_SOURCE="https://u:secret@a.example/x?t=secret"))
    assert json.loads(note.read_text())["source"] == "https://a.example/x"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    claim_home(_settings(tmp_path, CC_PIPELINE_SOURCE="https://other@a.example/x"))
    with pytest.raises(UserInputError) as raised:
        claim_home(_settings(tmp_path, CC_PIPELINE_SOURCE="https://u:secret@b.example/x"))
    assert "secret" not in str(raised.value)


def test_words_of_others_are_scrubbed() -> None:
    error = NoAnswer("unreachable", "407 from http://u:secret@proxy:3128/ for https://h/k?token=secret, sorry")
    assert str(error) == "unreachable: 407 from http://proxy:3128/ for https://h/k sorry"
    for where in ("https://u:secret@h/x?t=secret", "/x?t=secret", "//u:secret@h/x?secret"):
        assert "secret" not in judge_status(302, {"location": where}, b"").detail


def test_an_address_that_is_stored_holds_credentials_or_not() -> None:
    for address in ("https://u@h/", "http://h/k?t", "s3://k:s@b/x", "https://u:p@[::1"):
        assert holds_access(address)
    for address in ("https://h/a@b", "/folder", "s3://b/x", "key?x", "file:///a?b"):
        assert not holds_access(address)
