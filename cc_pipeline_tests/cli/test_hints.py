"""What commands tell a person to type: it is typed here."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from typer.main import get_command

import cc_pipeline
from cc_pipeline.cli import run_report
from cc_pipeline.cli.app import app
from cc_pipeline.extension import extensions
from cc_pipeline.lake.slice import Slice
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = pytest.mark.xdist_group("cli")

#: A command in a sentence, up to what ends it there.
HINT = re.compile(r"cc-pipeline (?!did not|-- )((?:[a-z-]+ ?)+)((?:(?!cc-pipeline |   |\n|; |\. |\)|`).)*)")
FLAG = re.compile(r"(?<![\w'\"-])--?[a-z][a-z-]*")


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the package with its place; what f-strings fill in is left out."""
    root = Path(cc_pipeline.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
                yield f"{path.relative_to(root)}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(root)}:{node.lineno}", node.value


def wrong_in(command: click.Command, words: str, rest: str) -> str:
    """What is no command, or no flag of it."""
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        found = command.commands.get(word)
        if found is None:
            return f"no command {word}"
        command = found
    flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}
    return next((f"no flag {flag} of {words}" for flag in FLAG.findall(rest) if flag not in flags), "")


def test_every_command_that_is_named_exists_with_its_flags() -> None:
    hints = [(at, *found.groups()) for at, text in texts() for found in HINT.finditer(text)]
    assert len(hints) > 50
    whole = get_command(app)
    wrong = {f"{at}: {why}" for at, words, rest in hints if (why := wrong_in(whole, words, rest))}
    assert not wrong, "\n".join(sorted(wrong))


def hints_of_pages() -> Iterator[tuple[Path, int, str, str]]:
    """Every command that a page names: the page, the line, the words and what follows them. The changelog also has
    what is gone."""
    root = Path(cc_pipeline.__file__).parents[1]
    for page in (
        *sorted((root / "docs").glob("*.md")),
        *sorted((root / "docs").glob("extensions/*.md")),
        root / "README.md",
    ):
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
                for found in HINT.finditer(line):
                    yield page, number, *found.groups()  # type: ignore[misc]


def test_every_command_that_the_docs_name_exists_with_its_flags() -> None:
    whole = get_command(app)
    wrong = [
        f"{page.name}:{number}: {why}" for page, number, *found in hints_of_pages() if (why := wrong_in(whole, *found))
    ]
    assert not wrong, "\n".join(wrong)


def test_pages_of_the_core_name_no_command_of_an_extension() -> None:
    """But for the list of extensions, and the first page, which shows what there is: an extension can be deleted."""
    added = {name for extension in extensions() for name in extension.commands()}
    wrong = [
        f"{page.name}:{number}: {words}"
        for page, number, words, _ in hints_of_pages()
        if page.parent.name == "docs" and page.name != "extensions.md" and words.split()[0] in added
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.process
def test_a_capture_of_several_targets_counts_once(cli: Cli, world: World, tmp_path: Path) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    several = ["example.com", "set:two = example.com, example.org"]
    crawls = ("-c", NEW, "-c", OLD)
    assert cli("run", "--refetch", "-c", NEW, "example.com", "--home", home).status == 0
    said = cli("run", *crawls, *several, "--home", home)
    assert said.status == 0, said.err
    here = [
        capture
        for crawl in (NEW, OLD)
        for site in ("example.com", "example.org")
        for capture in world.truth.captures_of(crawl, domain=site, subset="warc")
    ]
    assert f"all {len(here):,} captures are fetched and stored" in said.out
    assert "crawldiagnostics and robotstxt were not requested" in said.out


def test_the_first_run_of_a_home_says_which_compiled_parts_are_missing(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cc_pipeline.cli.run_report.describe_missing_modules", lambda: "compiled parts: one is missing")
    wrong = ("run", "-c", "CC-MAIN-2013-99", "example.com", "--source", world.bucket)
    first = cli(*wrong, "--home", tmp_path / "new")
    assert (first.status, first.err.count("compiled parts: one is missing\n")) == (1, 1)
    later = cli(*wrong, "--home", world.untouched)
    assert (later.status, "compiled parts" in later.err) == (1, False)


def test_the_totals_of_all_targets_count_a_crawl_once() -> None:
    state = SimpleNamespace(captures=3, fetched=2, pending=1, lost=0)
    change = SimpleNamespace(before=SimpleNamespace(captures=1), after=state)
    changes = {Slice(crawl, target): change for crawl in (NEW, OLD) for target in ("a.example", "b.example")}
    assert run_report._sum_changes(cast(Any, changes)) == (2, 12, 8, 4, 0)
