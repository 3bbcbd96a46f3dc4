"""What every command owes: help with examples, a page in the docs, and one line for a mistake."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context
from typer.main import get_command

from cc_pipeline.api.home import Home
from cc_pipeline.cli.app import app
from cc_pipeline.extension import extensions
from cc_pipeline_tests import commands_page
from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli, World, split_source

pytestmark = pytest.mark.xdist_group("cli homes")

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
WHOLE = get_command(app)
NEEDS_EXAMPLES = ("plan", "lookup", "doctor",
                  "index harvest", "index build", "index repair")  # fmt: skip


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in WHOLE.commands.items():
        inner = getattr(command, "commands", None)
        found += [(name, each) for each in inner] if inner else [] if command.hidden else [(name,)]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_help_says_what_a_command_does(cli: Cli, command: tuple[str, ...]) -> None:
    said = cli(*command, "--help")
    assert said.status == 0
    assert f"cc-pipeline {' '.join(command)}" in said.out
    assert " ".join(command) not in NEEDS_EXAMPLES or "Examples" in said.out


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_examples_fit_a_terminal_of_80_columns(command: tuple[str, ...]) -> None:
    found = WHOLE.commands[command[0]]
    found = getattr(found, "commands", {})[command[1]] if len(command) > 1 else found
    examples = (found.help or "").partition("Examples[/]")[2]
    # a wrapped example can no longer be pasted; help has a margin of a column at each side
    assert [line for line in examples.splitlines() if line.startswith("  ") and len(line) > 78] == []


def test_what_needs_examples_is_there() -> None:
    assert {*NEEDS_EXAMPLES} <= {" ".join(command) for command in commands()}


def test_the_docs_have_every_command_and_every_method() -> None:
    page, text = commands_page.PAGE, commands_page.PAGE.read_text("utf-8")
    assert commands_page.page_of(text) == text, f"{page.name}: make docs writes it"
    methods = {name for name in vars(Home) if not name.startswith("_")}
    assert {*re.findall(r"`home\.(\w+)`", text)} >= methods
    extension_texts = "".join(path.read_text("utf-8") for path in PAGES_OF_EXTENSIONS)
    added = [" ".join(command) for command in commands() if command[0] in OF_EXTENSIONS]
    assert [name for name in added if f"cc-pipeline {name}" not in extension_texts] == []


#: Commands that extensions hand in, and the pages that tell of them.
OF_EXTENSIONS = {name for extension in extensions() for name in extension.commands()}
PAGES_OF_EXTENSIONS = sorted((DOCS.parent / "extensions").glob("*.md"))
#: Groups whose commands belong to a feature; all other commands are the core.
FEATURES = {"index", "files", "automation"} | OF_EXTENSIONS
#: Options that go with what is asked, whatever the command.
SHARED = {"--home", "--source", "--crawl", "--guard-formulas", "--help"}


def test_the_core_is_small_and_begins_with_the_everyday_commands() -> None:
    names = WHOLE.list_commands(Context(WHOLE))
    everyday = ["run", "plan", "lookup", "get", "sql", "export", "targets", "doctor", "ui"]
    assert [name for name in names if name in everyday] == everyday
    assert {*names} >= {"index", "files", "automation"}
    assert names.index("ui") < names.index("crawls") < names.index("index"), "panels stand in their order"
    assert len([command for command in commands() if command[0] not in FEATURES]) <= 20


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_a_command_has_at_most_thirteen_options_of_its_own(command: tuple[str, ...]) -> None:
    found = WHOLE
    for name in command:
        found = found.commands[name]
    named = [one.opts[0] for one in found.params if one.opts[0].startswith("-")]
    assert len([*filter(lambda name: name not in SHARED, named)]) <= 13, named


def test_no_command_takes_targets_or_crawls_in_another_way() -> None:
    for command in commands():
        found = WHOLE
        for name in command:
            found = found.commands[name]
        for one in found.params:
            assert not {"-d", "--domain", "--target"} & {*one.opts}, command
            assert one.name != "crawl" or "-c" in one.opts, command


BAD_INPUT = {
    "no such crawl": ("lookup", "example.com", "-c", "CC-MAIN-2031-01"),
    "no crawl id": ("lookup", "example.com", "-c", "../../etc"),
    "no target": ("lookup", "exa mple", "-c", NEW),
    "a public suffix": ("lookup", "--count", "co.uk", "-c", NEW),
    "an unknown format": ("lookup", "example.com", "-c", NEW, "--format", "xml"),
    "an unknown column": ("lookup", "example.com", "-c", NEW, "--columns", "urls"),
    "an unknown index": ("lookup", "example.com", "-c", NEW, "--index", "guess"),
    "an index that is not there": ("lookup", "example.com", "-c", ARC, "--index", "zipnum"),
    "a time that is none": ("lookup", "example.com", "-c", NEW, "--where", "time >= yesterday"),
    "an unknown subset": ("plan", "example.com", "-c", NEW, "--subset", "wet"),
    "an index that is published": ("index", "build", "-c", ARC),
    "a folder that is not there": ("lookup", "example.com", "-c", NEW, "--out", "no/such/folder.csv"),
    "a list of files of two crawls": ("index", "harvest", "-c", NEW, "-c", ARC, "--index-files", "list.txt"),
    "a home of another source": ("lookup", "example.com", "-c", NEW, "--source", "/nowhere"),
}


@pytest.mark.parametrize("arguments", BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_a_mistake_is_one_line_and_status_1(cli: Cli, world: World, arguments: tuple[str, ...]) -> None:
    said = cli(*arguments, "--home", world.home)
    assert said.status == 1
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 4
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [("lookup",), ("lookup", "example.com"), ("nonsense",),
     ("index", "nonsense"),
     ("lookup", "x.com", "-c", NEW, "--limit", "many")],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_is_status_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).status == 2


@pytest.mark.process
def test_any_locale_and_any_stream_will_do(world: World, tmp_path: Path) -> None:
    def asked(shell: str) -> subprocess.CompletedProcess[bytes]:
        environment = {
            **os.environ,
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "LC_ALL": "C",
            "HOME_ASKED": str(world.home),
        }
        program = f"{sys.executable} -c 'from cc_pipeline.cli import main; main()' sql --home $HOME_ASKED {shell}"
        return subprocess.run(
            ["/bin/sh", "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=False
        )

    assert asked('"SELECT chr(1087) AS c"').stdout.decode() == "c\n\u043f\n"
    for closed in ("<&-", '"SELECT 1" >&-', '"SELECT 1" 2>&-'):
        said = asked(closed)
        assert (said.returncode, split_source(said.stderr.decode())[1]) == (0, ""), closed
    if Path("/dev/full").exists():
        said = asked('"SELECT 1" > /dev/full')
        assert said.returncode == 1
        assert split_source(said.stderr.decode())[1].startswith("error: ")
        assert b"Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("what", "status", "told"),
    [
        ("raise Incomplete('not all came', 'run it again')", 3, b"not all came"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", 130, b"stopped"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 143, b"stopped"),
        ("pass", 1, b""),
    ],
)
def test_a_reader_that_is_gone_changes_no_status(what: str, status: int, told: bytes) -> None:
    """``cc-pipeline … | head`` and ``| tee log``: what is left in the buffer must not hide why the command ended."""
    program = (
        "import importlib, os, signal, time; from cc_pipeline.errors import Incomplete\n"
        "main = importlib.import_module('cc_pipeline.cli.app')\n"
        f"def app():\n    print('rows'); {what}\n"
        "main.app = app; main.main()"
    )
    reading, writing = os.pipe()
    os.close(reading)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writing)
    assert (done.returncode, told in done.stderr, b"rror" in done.stderr.replace(b"error: not all", b"")) == (
        status, True, False,
    ), done.stderr  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from cc_pipeline.cli import main; sys.argv = ['cc-pipeline', 'run', '--help']\n"
        "heavy = {'dagster', 'duckdb', 'pyarrow', 'deltalake', 'aiohttp', 'botocore', 'numpy'}\n"
        "try:\n    main()\nfinally:\n    print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_command_of_the_makefile_exists_with_its_flags() -> None:
    makefile = (DOCS.parents[1] / "Makefile").read_text("utf-8")
    lines = re.findall(r"^\t@?\$\(VENV\)/cc-pipeline (.*)$", makefile, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(re.sub(r"\$\(if [^,]*,(.*)\)", r"\1", line).partition(" > ")[0])
        command = WHOLE
        while inner := getattr(command, "commands", None):
            command, words = inner[words[0]], words[1:]
        # raises for what is no flag of it, and runs nothing
        command.make_context(line, words)
