"""What texts of the package, the docs and the Makefile tell a person to type exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from typer.main import get_command

import cc_pipeline
from cc_pipeline.cli.app import app
from cc_pipeline.extension import extensions

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
    whole = get_command(app)
    wrong = {f"{at}: {why}" for at, words, rest in hints if (why := wrong_in(whole, words, rest))}
    assert not wrong, "\n".join(sorted(wrong))
    # an extension can be deleted, but for the list of extensions, and the first page, which shows what there is
    added = {name for extension in extensions() for name in extension.commands()}
    core = re.compile(r"docs/(?!extensions)[^/]*:")
    assert [at for at, words, _ in hints if core.match(at) and words.split()[0] in added] == []


def test_every_command_of_the_makefile_exists_with_its_flags() -> None:
    lines = re.findall(r"^\t@?\$\(VENV\)/cc-pipeline (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(re.sub(r"\$\(if [^,]*,(.*)\)", r"\1", line).partition(" > ")[0])
        command = get_command(app)
        while inner := getattr(command, "commands", None):
            command, words = inner[words[0]], words[1:]
        # raises for what is no flag of it, and runs nothing
        command.make_context(line, words)
