"""The watch list stays a file a person edits, whatever happens to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stages import watch_list
from cc_pipeline_tests.world import fill, small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "domains.txt"


def targets(*texts: str) -> list:
    return [parse_target(text) for text in texts]


def test_a_list_nobody_wrote_is_empty(path: Path) -> None:
    assert watch_list.read(path) == ()
    assert watch_list.remove(path, targets("example.com")) == ()
    assert not path.exists()


def test_what_is_added_is_there_once_and_comments_stay(path: Path) -> None:
    path.write_text("# mine\nexample.org  # the other one\n\nhost:www.example.net", "utf-8")
    added = watch_list.add(path, targets("example.com", "EXAMPLE.com.", "example.org"))
    assert [target.slug for target in added] == ["example.com"]
    assert path.read_text("utf-8") == ("# mine\nexample.org  # the other one\n\nhost:www.example.net\nexample.com\n")
    assert watch_list.add(path, targets("example.com")) == ()


def test_removing_takes_the_line_and_leaves_the_rest(path: Path) -> None:
    path.write_text("# mine\nexample.org\nmünchen.de\nexample.com # why\n", "utf-8")
    gone = watch_list.remove(path, targets("xn--mnchen-3ya.de", "example.com", "never.example"))
    assert [target.slug for target in gone] == ["xn--mnchen-3ya.de", "example.com"]
    assert path.read_text("utf-8") == "# mine\nexample.org\n"


def test_a_changed_set_takes_the_place_of_the_one_of_its_name(path: Path) -> None:
    watch_list.add(path, targets("set:press = example.com, example.org", "example.net"))
    watch_list.add(path, targets("set:press = example.com"))
    assert [target.definition for target in watch_list.read(path)] == ["example.net", "set:press = example.com"]


def test_a_file_saved_by_a_windows_editor_is_read(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfexample.com\r\n# note\r\n\xc3\xbc.example.org\r\n")
    assert [target.slug for target in watch_list.read(path)] == ["example.com", "xn--tda.example.org"]


@pytest.mark.parametrize("change", [watch_list.add, watch_list.remove])
def test_every_bad_line_is_named_and_the_file_left_alone(path: Path, change) -> None:
    text = "example.com\nbad..domain\n# fine\nexample.org\nco.uk\n"
    path.write_text(text, "utf-8")
    with pytest.raises(UserInputError) as refused:
        change(path, targets("example.com", "example.net"))
    message = str(refused.value)
    assert str(path) in message
    assert "line 2: 'bad..domain'" in message
    assert "line 5: 'co.uk'" in message
    assert "Correct or delete" in message
    assert path.read_text("utf-8") == text


def test_a_file_that_is_no_utf8_names_the_line(path: Path) -> None:
    path.write_bytes(b"example.com\nm\xfcnchen.de\n")
    with pytest.raises(UserInputError, match="line 2 is not UTF-8 text; save the file as UTF-8"):
        watch_list.read(path)


def test_a_folder_in_its_place_is_an_error_that_names_it(path: Path) -> None:
    path.mkdir()
    with pytest.raises(EnvironmentFault, match=r"domains\.txt cannot be read"):
        watch_list.read(path)


def test_a_full_disk_leaves_the_list_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        path = disk / "domains.txt"
        watch_list.add(path, targets("example.com"))
        before = path.read_bytes()
        filler = fill(disk)
        with pytest.raises(EnvironmentFault, match="cannot be written: No space left") as refused:
            watch_list.add(path, targets("set:many = " + ", ".join(f"site-{n}.example.org" for n in range(500))))
        assert "as before" in refused.value.advice
        assert path.read_bytes() == before
        assert sorted(file.name for file in disk.iterdir()) == ["domains.txt", "filler"]
        filler.unlink()
        watch_list.add(path, targets("example.org"))
        assert len(watch_list.read(path)) == 2
