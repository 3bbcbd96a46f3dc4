"""What ``doctor`` and ``plan`` say of the budget at Common Crawl's own host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cc_pipeline.automation.source_state import find_source_trouble
from cc_pipeline.checks.doctor import budget_findings
from cc_pipeline.cli.commands.plan import _duration_note
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.transport.host_file import reset_host
from cc_pipeline.workspace.workspace import Workspace, limits_of, open_transport, rate_now
from cc_pipeline_tests.refusing_hosts import make_refuse, note_answer

HOST = "data.commoncrawl.org"


def settings_of(folder: Path, **values: str) -> Settings:
    given = {f"CC_PIPELINE_{name}": text for name, text in values.items()}
    return load_settings({"XDG_STATE_HOME": str(folder / "state"), **given}, home=str(folder / "home"))


def said_of(settings: Settings) -> list[str]:
    """What a person is told of 100,000 requests."""
    workspace = Workspace(settings)
    try:
        return _duration_note(settings, rate_now(workspace), 100_000)
    finally:
        workspace.close()


def test_the_time_is_that_of_the_rate_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    settings = settings_of(tmp_path)
    assert said_of(settings) == ["100,000 requests take 5.6 h at 5 requests a second"]
    by_hand = settings_of(tmp_path, RATE="10", CONTACT="mailto:me@example.org")
    assert said_of(by_hand) == ["100,000 requests take 2.8 h at 10 requests a second"]
    assert said_of(settings_of(tmp_path, SOURCE=str(tmp_path))) == []
    make_refuse(settings.budget_path, HOST, limits_of(settings), ahead=0)
    [refuses] = budget_findings(settings)
    assert refuses.level == "bad"
    now += 6
    note_answer(settings.budget_path, HOST, limits_of(settings))
    slower = "100,000 requests take 10.5 h at 2.65 requests a second; slower than the usual"
    assert said_of(settings) == [f"{slower} 5, since the source refused lately"]
    assert said_of(by_hand) == [f"{slower} 10, since the source refused lately"]
    other_home = load_settings({"XDG_STATE_HOME": str(tmp_path / "state")}, home=str(tmp_path / "other"))
    [finding] = budget_findings(other_home)
    assert "it refused this address at" in finding.text
    assert "2.6 requests/s for now" in finding.text
    now += 86_400
    assert said_of(settings) == ["100,000 requests take 5.6 h at 5 requests a second"]


def test_a_damaged_budget_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    settings.budget_path.parent.mkdir(parents=True)
    settings.budget_path.write_bytes(b"no database" * 1_000)
    [finding] = budget_findings(settings)
    assert finding.level == "bad"
    assert str(settings.budget_path) in finding.text
    assert said_of(settings) == ["100,000 requests take 5.6 h at 5 requests a second"]
    with pytest.raises(EnvironmentFault, match="request budget"):
        reset_host(settings.budget_path, HOST)
    workspace = Workspace(settings)
    assert "request budget" in str(find_source_trouble(workspace, "CC-MAIN-2024-10"))
    workspace.close()


@pytest.mark.parametrize(("name", "value"), [("RATE", "10"), ("CONCURRENCY", "8")])
def test_a_transport_to_common_crawl_that_takes_more_needs_a_contact(tmp_path: Path, name: str, value: str) -> None:
    settings = settings_of(tmp_path, **{name: value})
    with pytest.raises(UserInputError, match=f"CC_PIPELINE_{name} is {value}: more than .*Set CC_PIPELINE_CONTACT"):
        open_transport(settings, settings.source, settings.source_access)
    known = settings_of(tmp_path, **{name: value, "CONTACT": "mailto:me@example.org"})
    open_transport(known, known.source, known.source_access).close()
