"""A run of several crawls, of which some fail: the others are run, and the end names those that were left."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from cc_pipeline.api import target_runs
from cc_pipeline.api.lookups import NoIndex, look_up_each_crawl
from cc_pipeline.api.target_runs import Part, run_targets
from cc_pipeline.cli.run_report import CrawlLines, print_summary
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, Incomplete, PlaceFault, SourceRefuses
from cc_pipeline.extraction.crawl_plan import PartitionChange, PartitionTotals
from cc_pipeline.lake.slice import Slice
from cc_pipeline.settings import load_settings

CRAWLS = [f"CC-MAIN-20{year}-10" for year in range(25, 13, -1)]


def run(
    home: Path, monkeypatch: pytest.MonkeyPatch, faults: dict[int, EnvironmentFault], parts: list[Part] | None = None
) -> tuple[list[str], list[bool], list[EnvironmentFault]]:
    """Runs ``CRAWLS``, some of which raise; gives those that were asked, which were the last, and the troubles."""
    asked: list[str] = []
    lasts: list[bool] = []

    def part(settings: Any, crawls: Sequence[str], targets: Any, _: Any, unfound: Any, **__: Any) -> tuple[Part, None]:
        asked.extend(crawls)
        lasts.append(unfound[1])
        if (fault := faults.get(CRAWLS.index(crawls[0]))) is not None:
            raise fault
        return Part(settings, targets, {}, frozenset(), ()), None

    monkeypatch.setattr(target_runs, "_resolve_selection", lambda *_: (tuple(CRAWLS), True))
    monkeypatch.setattr(target_runs, "run_part", part)
    monkeypatch.setattr(target_runs, "_publish", lambda _: None)
    on_part = (parts if parts is not None else []).append
    troubles = run_targets(load_settings({}, home=str(home)), ["all"], [parse_target("example.com")], on_part=on_part)
    return asked, lasts, troubles


@pytest.mark.parametrize("family", [EnvironmentFault, Incomplete])
def test_the_next_crawl_is_run_and_the_end_names_what_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: type[EnvironmentFault]
) -> None:
    faults = {place: family(f"{CRAWLS[place]} gave nothing", "Look") for place in (1, 2, 11)}
    asked, lasts, [trouble] = run(tmp_path, monkeypatch, faults)
    assert asked == CRAWLS
    assert type(trouble) is family
    assert f"3 of 12 crawls were skipped: {', '.join(CRAWLS[place] for place in (1, 2, 11))}." in trouble.problem
    again = " ".join(f"--crawl {CRAWLS[place]}" for place in (1, 2, 11))
    assert again in str(trouble.advice)
    assert not any(lasts), "a target that was found nowhere may be in a crawl that was not asked"


def test_a_source_that_refuses_or_fails_everywhere_is_left_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _, [trouble] = run(tmp_path, monkeypatch, {3: SourceRefuses("refuses until noon", "Wait")})
    assert asked == CRAWLS[:4]
    assert isinstance(trouble, SourceRefuses)
    assert "9 of 12 crawls were skipped" in trouble.problem
    asked, _, [trouble] = run(tmp_path, monkeypatch, dict.fromkeys(range(2, 12), EnvironmentFault("no network", "")))
    assert asked == CRAWLS[:7]
    assert "10 of 12 crawls were skipped" in trouble.problem


def test_a_full_disk_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlaceFault):
        run(tmp_path, monkeypatch, {3: PlaceFault("the disk is full", "")})
    asked, lasts, troubles = run(tmp_path, monkeypatch, {})
    assert (asked, lasts, troubles) == (CRAWLS, [False] * 11 + [True], [])


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some space. Then run"), (errno.EIO, "Check the disk")]
)
def test_trouble_of_the_disk_in_the_state_of_a_home_is_told_in_a_line(tmp_path: Path, number: int, remedy: str) -> None:
    with pytest.raises(PlaceFault, match="the state in") as told, target_runs.report_disk_faults(tmp_path):
        raise OperationalError("insert …", {}, OSError(number, "words"))
    assert remedy in str(told.value.advice)


def test_a_crawl_without_an_index_is_a_part_of_its_own_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target_runs, "_find_unsearchable", lambda *_: (CRAWLS[11], CRAWLS[3]))
    parts: list[Part] = []
    asked, lasts, troubles = run(tmp_path, monkeypatch, {}, parts)
    assert (asked, lasts, troubles) == ([*CRAWLS[:3], *CRAWLS[4:11]], [False] * 9 + [True], [])
    assert not parts[0].targets
    assert parts[0].notes == (f"2 crawls not searched, since no index is published: {CRAWLS[11]}, {CRAWLS[3]}",)
    print_summary(parts[:1])
    assert capsys.readouterr().out == f"note: {parts[0].notes[0]}\n"
    # listed captures need no index
    groups, unsearched = target_runs._split_by_crawl(load_settings({}, home=str(tmp_path)), CRAWLS, [])
    assert (groups, unsearched) == ([], ())


def test_many_crawls_have_a_line_a_year(capsys: pytest.CaptureFixture[str]) -> None:
    change = PartitionChange(PartitionTotals(), PartitionTotals(inputs=({},), captures=5, fetched=2, lost=1))
    target = parse_target("a.org")
    crawls = [f"CC-MAIN-{year}-{week}" for year in (2024, 2023) for week in range(10, 19)]
    for shown in (crawls, crawls[7:11]):
        lines = CrawlLines()
        for number, crawl in enumerate(shown, start=1):
            slices = {Slice(crawl, "a.org"): change}
            lines.add(Part(load_settings({}), (target,), slices, frozenset(), (), (number, len(shown)), 0.5))
        lines.print()
        printed = capsys.readouterr().out.splitlines()
        names = ["2024", "2023"] if shown is crawls else shown
        assert [line.split()[3] for line in printed] == [f"{name}:" for name in names]
    assert f"{crawls[7]}: 1 of 1 targets, 5 captures, 5 new, 2 pending, 1 lost, 0 s" in printed[0]


def test_only_crawls_of_the_arc_years_may_have_no_index(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = load_settings({}, home=str(tmp_path / "home"), source=str(tmp_path / "bucket"))
    assert target_runs._find_unsearchable(settings, [CRAWLS[0], "CC-MAIN-2009-2010"]) == ("CC-MAIN-2009-2010",)
    assert target_runs._find_unsearchable(settings, CRAWLS) == ()
    with pytest.raises(NoIndex, match="no index of CC-MAIN-2009-2010"):
        target_runs._find_unsearchable(settings, ["CC-MAIN-2009-2010"])


def test_a_look_up_without_any_index_is_an_error_and_no_empty_result() -> None:
    def look_up(crawl: str) -> list[object]:
        raise NoIndex(f"this home has no index of {crawl}", f"Make one: {crawl}")

    failed: list[str] = []
    with pytest.raises(NoIndex, match="nothing was searched: none of the 2 crawls") as refused:
        list(look_up_each_crawl(CRAWLS[:2], look_up, failed))
    assert (refused.value.advice, failed) == (f"Make one: {CRAWLS[0]}", [])
