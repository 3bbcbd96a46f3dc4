"""The watch list stays a file a person edits, whatever happens to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.automation import watch_list
from cc_pipeline.commoncrawl import target_text
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline_tests.world import fill, small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "domains.txt"


def targets(*texts: str) -> list:
    return [parse_target(text) for text in texts]


def test_a_list_nobody_wrote_is_empty(path: Path) -> None:
    assert watch_list.read(path) == ()
    assert watch_list.remove(path, ["example.com"]) == ()
    assert not path.exists()


def test_what_is_added_is_there_once_and_comments_stay(path: Path) -> None:
    path.write_text("# mine\nexample.org  # the other one\n\nhost:www.example.net", "utf-8")
    added = watch_list.add(path, targets("example.com", "EXAMPLE.com.", "example.org"))
    assert [target.slug for target in added] == ["example.com"]
    assert path.read_text("utf-8") == ("# mine\nexample.org  # the other one\n\nhost:www.example.net\nexample.com\n")
    assert watch_list.add(path, targets("example.com")) == ()


def test_removing_takes_the_line_and_leaves_the_rest(path: Path) -> None:
    path.write_text("# mine\nexample.org\nmünchen.de\nexample.com # why\n", "utf-8")
    gone = watch_list.remove(path, ["xn--mnchen-3ya.de", "example.com", "never.example"])
    assert gone == ("xn--mnchen-3ya.de", "example.com")
    assert path.read_text("utf-8") == "# mine\nexample.org\n"


def test_a_target_and_its_conditions_are_lines_of_their_own(path: Path) -> None:
    lines = ("example.org", "example.org where status=200", "set:press = example.com, example.org where lang=deu")
    added = watch_list.add(path, targets(*lines, "EXAMPLE.org where status = 200", "set:press = example.com"))
    assert [target.definition for target in watch_list.read(path)] == [*lines, "set:press = example.com"]
    gone = watch_list.remove(path, [target.slug for target in added if target.where])
    assert gone == lines[1:]
    assert path.read_text("utf-8").endswith(".md.\nexample.org\nset:press = example.com\n")


def test_a_changed_set_takes_the_place_of_the_one_of_its_name(path: Path) -> None:
    watch_list.add(path, targets("set:press = example.com, example.org", "example.net"))
    watch_list.add(path, targets("set:press = example.com"))
    assert [target.definition for target in watch_list.read(path)] == ["example.net", "set:press = example.com"]


def test_a_file_saved_by_a_windows_editor_is_read(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfexample.com\r\n# note\r\n\xc3\xbc.example.org\r\n")
    assert [target.slug for target in watch_list.read(path)] == ["example.com", "xn--tda.example.org"]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: watch_list.add(path, targets("example.com", "example.net")),
        lambda path: watch_list.remove(path, ["example.com"]),
    ],
)
def test_every_bad_line_is_named_and_the_file_left_alone(path: Path, change) -> None:
    text = "example.com\nbad..domain\n# fine\nexample.org\nco.uk\n"
    path.write_text(text, "utf-8")
    with pytest.raises(UserInputError) as refused:
        change(path)
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


def test_a_set_in_a_file_is_one_line_and_changes_with_the_file(path: Path) -> None:
    members = path.with_name("press.txt")
    members.write_text("# the press\n\nBBC.co.uk  # theirs\nhost:www.nytimes.com\nbbc.co.uk\n", "utf-8")
    listed = parse_target("set:press = @press.txt", path.parent)
    assert watch_list.add(path, [parse_target("example.com"), listed])
    assert path.read_text("utf-8").endswith("example.com\nset:press = @press.txt\n")
    _, found = watch_list.read(path)
    assert [member.definition for member in found.members] == ["bbc.co.uk", "host:www.nytimes.com"]
    # it is the set that the same members written out make
    written = parse_target("set:press = bbc.co.uk, host:www.nytimes.com")
    assert (found.slug, found.version, found.ranges) == (written.slug, written.version, written.ranges)
    assert watch_list.add(path, [listed]) == ()
    members.write_text("bbc.co.uk\nexample.org\n", "utf-8")
    _, grown = watch_list.read(path)
    assert grown.version != found.version
    assert watch_list.remove(path, [listed.slug]) == ("set:press = @press.txt",)
    assert [target.slug for target in watch_list.read(path)] == ["example.com"]
    assert members.exists()


def test_wrong_lines_of_a_sets_file_are_named_with_file_and_line(path: Path) -> None:
    members = path.with_name("press.txt")
    members.write_text("bbc.co.uk\nbad..domain\nset:other = a.com\nrev:com.a, com.b\n# fine\nco.uk\n", "utf-8")
    path.write_text("example.com\nset:press = @press.txt\nset:gone = @no-such.txt\nset:empty = @empty.txt\n", "utf-8")
    path.with_name("empty.txt").write_text("# nobody\n", "utf-8")
    with pytest.raises(UserInputError) as refused:
        watch_list.read(path)
    message = str(refused.value)
    assert f"line 2: {members}, line 2: 'bad..domain'" in message
    for part in ("line 3: 'set:other = a.com' is a set", "line 4: 'rev:com.a, com.b' is a set", "line 6: 'co.uk'"):
        assert part in message
    assert "line 3: the file with the members of 'set:gone' cannot be read" in message
    assert "line 4: " in message
    assert "empty.txt lists no targets, so 'set:empty' has no members" in message
    members.write_bytes(b"bbc.co.uk\nm\xfcnchen.de\n")
    with pytest.raises(UserInputError, match=r"press\.txt, line 2 is not UTF-8"):
        watch_list.read(path)


def test_a_list_that_stays_is_parsed_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = path.with_name("press.txt")
    members.write_text("".join(f"site-{number}.example\n" for number in range(500)), "utf-8")
    path.write_text("example.com\nset:press = @press.txt\n", "utf-8")
    first = watch_list.read(path)
    asked: list[str] = []
    plain = target_text.is_icann_suffix
    monkeypatch.setattr(target_text, "is_icann_suffix", lambda host: asked.append(host) or plain(host))
    assert watch_list.read(path) == first
    assert asked == ["example.com"]


def test_text_without_a_folder_reads_no_file() -> None:
    with pytest.raises(UserInputError, match="write the members out instead"):
        parse_target("set:press = @press.txt")


class TestWhatIsRight:
    """For sensors and schedules, which go on with what can be read."""

    def test_a_bad_line_is_named_and_the_others_count(self, tmp_path: Path) -> None:
        path = tmp_path / "domains.txt"
        path.write_text("example.com\n../x\nset:press = @gone.txt\nexample.org\n", "utf-8")
        found = watch_list.read_valid_targets(path)
        assert [target.slug for target in found.targets] == ["example.com", "example.org"]
        assert found.note is not None
        assert "line 2: '..'" in found.note
        assert "line 3:" in found.note
        assert "the other 2 targets are watched" in found.note
        with pytest.raises(UserInputError):
            watch_list.read(path)

    def test_a_list_that_cannot_be_read_is_an_error_and_not_an_empty_one(self, tmp_path: Path) -> None:
        path = tmp_path / "domains.txt"
        assert watch_list.read_valid_targets(path) == watch_list.WatchedTargets(())
        path.write_bytes(b"example.com\nexample.org\xff\n")
        with pytest.raises(UserInputError, match="line 2 is not UTF-8 text"):
            watch_list.read_valid_targets(path)
