"""A command says which source answers: nobody takes an invented page for a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli, World


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
