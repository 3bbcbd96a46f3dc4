"""What every command owes: help with examples, a page in the docs, one line for a mistake, which source answers, and
that what texts tell a person to type exists."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
from click import Command, Group
from typer.main import get_command

import cc_pipeline
from cc_pipeline.api.home import Home
from cc_pipeline.cli.app import app
from cc_pipeline.extension import extensions
from cc_pipeline_tests import commands_page
from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli, World, split_source

pytestmark = pytest.mark.xdist_group("cli homes")

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
WHOLE = cast(Group, get_command(app))
NEEDS_EXAMPLES = {"plan", "lookup", "doctor", "index harvest", "index build", "index repair"}
#: Commands that extensions hand in, and the pages that tell of them.
OF_EXTENSIONS = {name for extension in extensions() for name in extension.commands()}
PAGES_OF_EXTENSIONS = sorted((DOCS.parent / "extensions").glob("*.md"))


def commands() -> dict[str, Command]:
    """Every command by its words."""
    named = dict[str, Command]()
    for name, command in WHOLE.commands.items():
        if isinstance(command, Group):
            named |= {f"{name} {word}": inner for word, inner in command.commands.items()}
        elif not command.hidden:
            named[name] = command
    return named


def test_examples_are_there_and_fit_a_terminal_of_80_columns() -> None:
    examples = {name: (command.help or "").partition("Examples[/]")[2] for name, command in commands().items()}
    assert {name for name, lines in examples.items() if lines} >= NEEDS_EXAMPLES
    # a wrapped example can no longer be pasted; help has a margin of a column at each side
    lines = [line for text in examples.values() for line in text.splitlines() if line.startswith("  ")]
    assert [line for line in lines if len(line) > 78] == []


def test_the_docs_have_every_command_and_every_method() -> None:
    page, text = commands_page.PAGE, commands_page.PAGE.read_text("utf-8")
    assert commands_page.page_of(text) == text, f"{page.name}: make docs writes it"
    methods = {name for name in vars(Home) if not name.startswith("_")}
    assert {*re.findall(r"`home\.(\w+)`", text)} >= methods
    extension_texts = "".join(path.read_text("utf-8") for path in PAGES_OF_EXTENSIONS)
    added = [name for name in commands() if name.split()[0] in OF_EXTENSIONS]
    assert [name for name in added if f"cc-pipeline {name}" not in extension_texts] == []


#: Commands that programs read.
WITH_ROWS = {"run", "doctor", "crawls", "settings", "targets list", "automation status", "index harvest"}


def test_the_program_tells_its_version_its_targets_and_its_completion_and_rows_in_any_format(cli: Cli) -> None:
    assert cli("--version").shown == f"cc-pipeline {cc_pipeline.__version__}"
    said = cli("--help").shown
    assert "A TARGET is a domain" in said and "--install-completion" in said
    assert {
        name for name, command in commands().items() if any(one.name == "row_format" for one in command.params)
    } >= (WITH_ROWS)


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
    "a suffix without a format": ("lookup", "example.com", "-c", NEW, "--out", "found.csv.gz"),
    "a list of files of two crawls": ("index", "harvest", "-c", NEW, "-c", ARC, "--index-files", "list.txt"),
    "a home of another source": ("lookup", "example.com", "-c", NEW, "--source", "/nowhere"),
    "two ways to look": ("doctor", "--live", "--verify"),
    "an option of another": ("doctor", "--all"),
    "a time without a day": ("get", "example.com", "--at", "yesterday"),
    "no address": ("get", "not a url"),
    "a name of no target": ("targets", "remove", "nobody.example"),
}


@pytest.mark.parametrize("arguments", BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_a_mistake_is_one_line_and_status_1(cli: Cli, world: World, arguments: tuple[str, ...]) -> None:
    said = cli(*arguments, "--home", world.home)
    assert said.status == 1
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 6
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


ROOT = Path(cc_pipeline.__file__).parents[1]
#: A command in a sentence, up to what ends it there.
HINT = re.compile(r"cc-pipeline (?!did not)((?:[a-z][a-z-]* ?)+)((?:(?!cc-pipeline |   |\n|; |\. |\)|`).)*)")
FLAG = re.compile(r"(?<![\w'\"-])--?[a-z][a-z-]*")


def texts_of_the_package() -> Iterator[tuple[str, str]]:
    """Every text of the package with its place; what f-strings fill in is left out."""
    for path in sorted((ROOT / "cc_pipeline").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def texts_of_pages() -> Iterator[tuple[str, str]]:
    """Every line of the pages with its place. The changelog also has what is gone."""
    for page in (
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/extensions").glob("*.md")),
        ROOT / "README.md",
    ):
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
                yield f"{page.relative_to(ROOT)}:{number}", line


def wrong_in(command: click.Command, words: str, rest: str) -> str:
    """What is no command, or no flag of it."""
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        inner = command.commands.get(word)
        if inner is None:
            return f"no command {word}"
        command = inner
    flags = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}
    return next((f"no flag {flag} of {words}" for flag in FLAG.findall(rest) if flag not in flags), "")


def test_every_command_that_is_named_exists_with_its_flags() -> None:
    texts = [*texts_of_the_package(), *texts_of_pages()]
    hints = [(at, *hint.groups()) for at, text in texts for hint in HINT.finditer(text)]
    assert len(hints) > 100
    wrong = {f"{at}: {why}" for at, words, rest in hints if (why := wrong_in(WHOLE, words, rest))}
    assert not wrong, "\n".join(sorted(wrong))
    # an extension can be deleted, but for the list of extensions, and the first page, which shows what there is
    core = re.compile(r"docs/(?!extensions)[^/]*:")
    assert [at for at, words, _ in hints if core.match(at) and words.split()[0] in OF_EXTENSIONS] == []


def test_every_command_of_the_makefile_exists_with_its_flags() -> None:
    lines = re.findall(r"^\t@?\$\(VENV\)/cc-pipeline (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(re.sub(r"\$\(if [^,]*,(.*)\)", r"\1", line).partition(" > ")[0])
        command = WHOLE
        while inner := getattr(command, "commands", None):
            command, words = inner[words[0]], words[1:]
        # raises for what is no flag of it, and runs nothing
        command.make_context(line, words)


@pytest.mark.parametrize("command", [("sql", "SELECT 1"), ("lookup", "example.com", "-c", NEW)])
def test_an_answer_of_a_mini_crawl_is_loudly_called_invented(cli: Cli, world: World, command: tuple[str, ...]) -> None:
    said = cli(*command, "--home", world.home)
    assert said.status == 0, said.err
    assert said.source.startswith(
        f"INVENTED WEB: {world.bucket} is a crawl generated for the demo; no page in it is real."
    )
    assert "INVENTED" not in said.out


def test_another_source_is_named_and_a_contact_is_asked_for_where_common_crawl_answers(
    cli: Cli, tmp_path: Path
) -> None:
    wrong = ("lookup", "no target", "-c", NEW, "--home", tmp_path / "home")
    other = cli(*wrong, "--source", tmp_path)
    assert other.source == f"source: {tmp_path}, which is not Common Crawl's own"
    own = cli(*wrong)
    assert "export CC_PIPELINE_CONTACT=mailto:" in own.source
    # what is in a home is answered without a request
    assert cli("sql", "SELECT 1", "--home", tmp_path / "home").source == ""
