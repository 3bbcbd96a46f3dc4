"""Advice in the words of Python."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.advice import ANY, Advice, advise, option, printing
from cc_pipeline.api.facade import describe_call
from cc_pipeline.errors import EnvironmentFault

NEW, OLD = "CC-MAIN-2024-22", "CC-MAIN-2018-05"
METHODS = [name for name in vars(cc_pipeline.Home) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("advice", "typed", "called"),
    [
        (option(yes=True), "--yes", "yes=True"),
        (option(table=None), "--table", "tables"),
        (option(allow_gaps=True), "--allow-gaps", "max_index_gaps=1"),
        (option(home="FOLDER"), "--home FOLDER", 'cc_pipeline.open("FOLDER")'),
        (option(crawl=[NEW, OLD]), f"--crawl {NEW} --crawl {OLD}", f'crawls=["{NEW}", "{OLD}"]'),
        (
            advise("run", "example.com where status=200", crawl="newest"),
            "cc-pipeline run 'example.com where status=200' --crawl newest",
            'home.run("example.com where status=200", crawls="newest")',
        ),
        (
            advise("run", "a.com", "b.com", crawl=NEW, subset=["robotstxt"]),
            f"cc-pipeline run a.com b.com --crawl {NEW} --subset robotstxt",
            f'home.run(["a.com", "b.com"], crawls="{NEW}", subsets=["robotstxt"])',
        ),
        (advise("run", ANY, crawl=ANY), "cc-pipeline run … --crawl …", "home.run(…, crawls=…)"),
        (
            advise("files captures", "FILE", name="mine"),
            "cc-pipeline files captures FILE --name mine",
            'home.add_captures("FILE", name="mine")',
        ),
        (
            advise("sql", "FROM ledger WHERE outcome = 'lost'"),
            "cc-pipeline sql \"FROM ledger WHERE outcome = 'lost'\"",
            "home.sql(\"FROM ledger WHERE outcome = 'lost'\")",
        ),
        # without a method, or with an option that no keyword of it replaces
        (
            advise("index harvest", crawl=NEW, subset=()),
            f"cc-pipeline index harvest --crawl {NEW}",
            f"cc-pipeline index harvest --crawl {NEW}",
        ),
        (
            advise("run", "a.com", crawl=NEW, refetch=True),
            f"cc-pipeline run a.com --crawl {NEW} --refetch",
            f'home.run("a.com", crawls="{NEW}", refetch=True)',
        ),
    ],
)
def test_each_door_prints_advice_in_its_words(advice: Advice, typed: str, called: str) -> None:
    assert (str(advice), describe_call(advice)) == (typed, called)


def test_an_error_carries_its_advice() -> None:
    advice = advise("run", "a.com", crawl=NEW, sentence="Run it first: {}.")
    with printing(describe_call):
        fault = EnvironmentFault("nothing is here", advice)
    assert str(fault) == f'nothing is here\nRun it first: home.run("a.com", crawls="{NEW}").'
    # also where no call is running; another process has another door
    assert fault.advice == f'Run it first: home.run("a.com", crawls="{NEW}").'
    assert pickle.loads(pickle.dumps(fault)).advice == f"Run it first: cc-pipeline run a.com --crawl {NEW}."


def test_a_home_that_nobody_ran_says_so_in_python(tmp_path: Path) -> None:
    home = cc_pipeline.open(tmp_path / "home", source=str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"home\.run"):
        home.tables()
