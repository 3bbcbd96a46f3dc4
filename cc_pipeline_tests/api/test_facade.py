"""Wrong keywords and advice in the words of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cc_pipeline
from cc_pipeline.api.facade import WrongKeyword, advice_for_python, translate_for_python
from cc_pipeline.errors import EnvironmentFault, UserInputError

METHODS = [name for name in vars(cc_pipeline.Home) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda home: home.lookup("example.com", crawl="2018"),
            "home.lookup() has no keyword 'crawl'; did you mean 'crawls'?",
        ),
        (
            lambda home: home.run("example.com", idnex="zipnum"),
            "home.run() has no keyword 'idnex'; did you mean 'index'?",
        ),
        (lambda home: home.get("example.com", time="2018"), "home.get() has no keyword 'time'; "),
        (
            lambda home: home.export("x.csv", table="captures"),
            "home.export() has no keyword 'table'; did you mean 'tables'?",
        ),
        (lambda home: home.lookup("example.com", index="btree"), "index is a keyword of cc_pipeline.open()"),
        (
            lambda home: cc_pipeline.open(engin="spark"),
            "cc_pipeline.open() has no keyword 'engin'; did you mean 'engine'?",
        ),
    ],
)
def test_a_wrong_keyword_names_the_function_and_the_nearest_right_one(tmp_path: Path, call: Any, said: str) -> None:
    with pytest.raises(WrongKeyword) as wrong:
        call(cc_pipeline.open(tmp_path))
    assert said in str(wrong.value)
    # both what Python raises for it and what this program raises for words
    assert isinstance(wrong.value, TypeError) and isinstance(wrong.value, UserInputError)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_refuses_a_keyword_in_its_own_name(tmp_path: Path, method: str) -> None:
    with pytest.raises(WrongKeyword, match=rf"home\.{method}\(\) has no keyword 'nonsense'"):
        getattr(cc_pipeline.open(tmp_path), method)(nonsense=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("above the limit somebody has to agree: --yes", "above the limit somebody has to agree: yes=True"),
        ("choose one of --table and --query", "choose one of tables and query"),
        (
            "Run it first, for instance with: cc-pipeline run 'example.com where status=200' --crawl newest",
            'Run it first, for instance with: home.run("example.com where status=200", "newest")',
        ),
        (
            "cc-pipeline run a.com b.com -c CC-MAIN-2024-22 -c CC-MAIN-2018-05",
            'home.run(["a.com", "b.com"], ["CC-MAIN-2024-22", "CC-MAIN-2018-05"])',
        ),
        (
            "Search these crawls again: -c CC-MAIN-2024-22 -c CC-MAIN-2018-05",
            'Search these crawls again: crawls=["CC-MAIN-2024-22", "CC-MAIN-2018-05"]',
        ),
        ("add it: cc-pipeline files captures FILE --name mine", "add it: home.add_captures('FILE', 'mine')"),
        ("cc-pipeline run TARGET --crawl CRAWL. For another home:", 'home.run("TARGET", "CRAWL"). For another home:'),
        ("For another home: --home FOLDER.", 'For another home: cc_pipeline.open("FOLDER").'),
        (
            "Locate them first: run the target (cc-pipeline run), or materialize the asset captures.",
            "Locate them first: run the target (home.run), or materialize the asset captures.",
        ),
        ("then export again. Or accept it: --allow-missing", "then export again. Or accept it: allow_missing=True"),
        # without a method of their own
        (
            "Harvest it: cc-pipeline index harvest --crawl CC-MAIN-2024-22",
            "Harvest it: cc-pipeline index harvest --crawl CC-MAIN-2024-22",
        ),
        (
            "cc-pipeline run … --crawl … --refetch, then export again",
            "cc-pipeline run … --crawl … --refetch, then export again",
        ),
        ("cc-pipeline doctor --repair. Or --yes", "cc-pipeline doctor --repair. Or yes=True"),
        ("a -- b, well-known, x--y", "a -- b, well-known, x--y"),
    ],
)
def test_advice_names_keywords_and_methods(text: str, said: str) -> None:
    assert translate_for_python(text) == said


def test_errors_keep_their_kind_and_say_it_in_python() -> None:
    with pytest.raises(EnvironmentFault) as fault, advice_for_python():
        raise EnvironmentFault("captures are missing", "Accept it: --allow-missing")
    assert fault.value.advice == "Accept it: allow_missing=True"
    assert str(fault.value) == "captures are missing\nAccept it: allow_missing=True"


def test_a_home_that_nobody_ran_says_so_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = cc_pipeline.open(tmp_path / "home", source=str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"home\.run"):
        home.tables()
    with pytest.raises(UserInputError, match="there are exact, prefix, host, domain"):
        home.lookup("example.com", match="exat")  # type: ignore[arg-type]
    home.reporter.note("ask for all: --yes")
    assert capsys.readouterr().err == "note: ask for all: yes=True\n"
