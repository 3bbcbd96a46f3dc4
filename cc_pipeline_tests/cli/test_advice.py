"""Advice is followed: the command that an error or a note prints is run as it stands there, and cures it."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

import cc_pipeline
from cc_pipeline.cli.app import app
from cc_pipeline.cli.output import console, console_err
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = pytest.mark.xdist_group("cli")

ROOT = Path(cc_pipeline.__file__).parent
#: A command, up to the end of its clause.
PRINTED = re.compile(r"cc-pipeline (?:(?!, or |, and |, then |\. |; | \(|\)).)*")


@dataclass(frozen=True, slots=True)
class Case:
    """``asked`` fails, or finds less than it could, and prints advice of the module ``of``. ``cured`` is in what it
    prints after the advice was followed; ``fresh``: in a home that nobody used."""

    of: str
    asked: str
    cured: str
    before: str = ""
    fresh: bool = False


CASES = {
    "an index that was not harvested": Case(
        "api/lookups.py", f"lookup example.com -c {NEW} --index parquet", "captures found", fresh=True
    ),
    "no catalog": Case(
        "cli/commands/index.py", "sql --catalog 'SELECT count(*) AS n FROM row_groups'", "n\n", fresh=True
    ),
    "more crawls": Case("cli/commands/sql.py", "crawls --limit 1", OLD),
    "no such crawl": Case("harvesting/crawls.py", "lookup example.com -c CC-MAIN-2031-01", ""),
    "no crawl id": Case("commoncrawl/crawls.py", "lookup example.com -c ../x", ""),
    "an empty watch list": Case("cli/commands/targets.py", "targets list", "example.com", fresh=True),
    "nothing watched": Case(
        "cli/commands/run.py", f"run --watched -c {NEW}", "captures are fetched and stored", fresh=True
    ),
    "not blocked": Case("extraction/blocklist.py", "targets unblock example.net", "no sites are blocked"),
    "a blocked page": Case(
        "extraction/blocklist.py", f"get example.com -c {NEW} --format json", "{", before="targets block example.com"
    ),
    "a target that was not run": Case("api/user_input.py", "export set:six --table captures --out out.csv", "captures"),
    "records of an empty home": Case("api/export.py", "export example.org --out out.wacz", "are listed", fresh=True),
    "subsets that were left out": Case(
        "checks/omissions.py", f"lookup example.com -c {NEW} --count", "robotstxt were not requested"
    ),
    "no key bounds": Case("cli/commands/plan.py", f"plan example.com -c {OLD} --index parquet", "lookup"),
    "sensors that are off": Case("cli/commands/automation.py", "automation status", "on"),
    "no such target": Case("automation/known_keys.py", "targets remove nobody.example", ""),
}
#: Places whose advice is not followed here, by module, and the reason.
NOT_FOLLOWED = {
    "checks/asset_checks.py": "lost bytes: followed in test_doctor.py",
    "checks/doctor.py": "findings of many kinds of home",
    "checks/outputs.py": "rows that other programs changed",
    "checks/tables.py": "a target of the reader's own",
    "cli/commands/doctor.py": "archive files that were lost",
    "cli/commands/files.py": "options of the same call; targets of the reader's own",
    "api/add_captures.py": "options of the same call: followed in named_captures/test_adding.py",
    "api/choices.py": "options of the same call: followed in test_home_settings.py",
    "api/run_steps.py": "a source without path lists; a FILE of the reader's own; damage of an archive file",
    "api/target_runs.py": "options of the same call; crawls that failed need a source that answers again",
    "cli/capture_output.py": "options of the same call",
    "cli/run_report.py": "queries and removals, which are run in test_lists.py and test_removing.py",
    "commoncrawl/target_text.py": "a name of the reader's own",
    "defs/assets/extraction.py": "printed by Dagster",
    "defs/partitions.py": "a hundred thousand partitions",
    "defs/sensors.py": "printed by Dagster",
    "export/capture_forms.py": "options of the same call",
    "export/documents.py": "options of the same call",
    "export/new_rows.py": "options of the same call",
    "export/selections.py": "options of the same call",
    "export/wacz_export.py": "followed in test_export.py",
    "extensions/delivery/commands.py": "followed in delivery/test_commands.py",
    "extensions/policies/dataset_export.py": "names of options",
    "extensions/policies/fill.py": "a run that was killed between two stages",
    "extensions/policies/usage_preferences.py": "followed in policies/test_dataset.py",
    "extensions/reports/findings.py": "followed in reports/test_command.py",
    "extraction/fetch.py": "a stage that Dagster starts by itself",
    "extraction/locate.py": "a stage that Dagster starts by itself",
    "extraction/nearest_capture.py": "options of the same call",
    "extraction/parse.py": "a stage that Dagster starts by itself",
    "extraction/reusable_records.py": "lost bytes: followed in test_doctor.py",
    "harvesting/build_index.py": "followed in test_news.py",
    "harvesting/archives.py": "a FILE of the reader's own",
    "harvesting/crawl_index.py": "a stage that Dagster starts by itself",
    "index/footers/harvest.py": "a source that refuses",
    "index/gaps.py": "gaps of an index: followed in test_incomplete.py",
    "index/locator.py": "names of options",
    "index/locators.py": "names of options",
    "index/parquet/finder.py": "footers that were lost: followed in harvesting/test_crawl_index.py",
    "index/parquet/locator.py": "a file that was published again: followed in harvesting/test_manners.py",
    "lake/published_file.py": "targets and homes of the reader's own",
    "lake/target_definitions.py": "a target that was removed meanwhile; a FILE of the reader's own",
    "named_captures/reading.py": "columns of the reader's own",
    "records/range_plan.py": "options of the same call",
    "transport/faults.py": "a source that refuses",
    "workspace/claim.py": "a source that has moved: followed in test_home_settings.py",
    "workspace/crawl_list.py": "a crawl of the reader's own",
    "workspace/source_files.py": "a FILE of the reader's own",
}


def pieces() -> Iterator[tuple[str, str, list[str]]]:
    """Every call of ``advise`` and ``option`` in the package: the module, the command, and the options."""
    sources = {path: path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)) if "advise(" in text or "option(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("advise", "option"):
                options = [keyword.arg for keyword in node.keywords if keyword.arg not in (None, "sentence")]
                command = ast.literal_eval(node.args[0]) if node.func.id == "advise" else ""
                if path.name != "advice.py":
                    yield str(path.relative_to(ROOT)), command, [str(name) for name in options]


def test_every_advice_names_a_command_with_its_options_and_is_followed_or_has_a_reason() -> None:
    whole, found = get_command(app), [*pieces()]
    for module, name, options in found:
        command = whole
        for word in name.split():
            command = command.commands[word]  # type: ignore[attr-defined]
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert not name or {f"--{option.replace('_', '-')}" for option in options} <= flags, (module, name)
    assert {module for module, _, _ in found} == {case.of for case in CASES.values()} | {*NOT_FOLLOWED}


@pytest.mark.parametrize("name", CASES)
def test_advice_that_is_followed_cures(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    home = tmp_path / "home"
    if not case.fresh:
        shutil.copytree(world.untouched, home)
    monkeypatch.chdir(tmp_path)
    for screen in (console, console_err):
        monkeypatch.setattr(screen, "_width", 2_000)  # so that no line is broken
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(world.bucket))
    place = ("--home", home)
    if case.before:
        assert cli(*case.before.split(), *place).status == 0
    asked = (*shlex.split(case.asked), *place)
    first = cli(*asked)
    [printed, *_] = PRINTED.findall(first.err)
    followed = cli(*shlex.split(printed)[1:])
    assert followed.status == 0, (printed, followed.err)
    again = cli(*asked)
    assert again.status == 0 or not case.cured or case.of == "extraction/blocklist.py", again
    assert case.cured in f"{followed.out}{followed.err}{again.out}{again.err}", (printed, again)


def test_an_address_with_a_secret_is_not_repeated(cli: Cli, tmp_path: Path) -> None:
    words = ("lookup", "captures:typo", "-c", NEW, "--home", tmp_path, "--source")
    assert "--source http://127.0.0.1:1" in cli(*words, "http://127.0.0.1:1").told
    said = cli(*words, "http://keeper:s3cret@127.0.0.1:1")
    assert "cc-pipeline files captures FILE --name typo --home" in said.told and "s3cret" not in said.err + said.out
