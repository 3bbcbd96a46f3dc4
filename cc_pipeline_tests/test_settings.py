"""Settings come from the environment, are checked once, and a home remembers its source."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import DEFAULT_COLLINFO, DEFAULT_SOURCE, Settings, load_settings
from cc_pipeline.settings.environment import yes_in
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.workspace.claim import claim_home, is_home_of


def test_the_default_is_the_public_bucket_and_another_brings_its_own_list(tmp_path: Path) -> None:
    settings = load_settings({"CC_PIPELINE_HOME": str(tmp_path)})
    assert settings.source == DEFAULT_SOURCE
    assert settings.collinfo == DEFAULT_COLLINFO
    assert settings.is_public
    assert settings.subsets == ("warc",)
    mirror = load_settings({"CC_PIPELINE_SOURCE": "s3://mirror/cc/", "CC_PIPELINE_HOME": str(tmp_path)})
    assert (mirror.source, mirror.collinfo) == ("s3://mirror/cc", "s3://mirror/cc/collinfo.json")
    assert not mirror.is_public


def test_flags_win_over_the_environment_and_none_is_no_flag(tmp_path: Path) -> None:
    env = {"CC_PIPELINE_SOURCE": "https://a.example", "CC_PIPELINE_HOME": str(tmp_path), "CC_PIPELINE_INDEX": "btree"}
    settings = load_settings(env, source="https://b.example", index=None)
    assert (settings.source, settings.index) == ("https://b.example", "btree")


def test_homes_of_a_user_share_one_budget_at_common_crawl(tmp_path: Path) -> None:
    state = tmp_path / "state"
    environ = {"XDG_STATE_HOME": str(state)}
    one, other = (load_settings(environ, home=str(tmp_path / name)).budget_path for name in "ab")
    assert one == other
    assert one.is_relative_to(state)
    bucket = load_settings({**environ, "CC_PIPELINE_SOURCE": "s3://commoncrawl"}, home=str(tmp_path / "c"))
    assert bucket.budget_path == one
    # what others serve is the home's own matter
    mine = load_settings({**environ, "CC_PIPELINE_SOURCE": "https://cc.example.org"}, home=str(tmp_path / "d"))
    assert mine.budget_path == tmp_path / "d" / "budget.sqlite"
    team = load_settings({**environ, "CC_PIPELINE_BUDGET": str(tmp_path / "team.sqlite")}, home=str(tmp_path / "e"))
    assert team.budget_path == tmp_path / "team.sqlite"
    assert "BUDGET" not in as_texts(team), "a path of one machine stays there"


def test_a_budget_that_another_user_has_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    shared = load_settings(environ, home=str(tmp_path / "home")).budget_path
    shared.parent.mkdir(parents=True)
    shared.touch()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != shared)
    assert load_settings(environ, home=str(tmp_path / "home")).budget_path == tmp_path / "home" / "budget.sqlite"


def test_a_user_whose_home_is_another_users_keeps_the_budget_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    stat = os.stat

    def refuse(path: Any, *args: Any, **values: Any) -> os.stat_result:
        if not isinstance(path, int) and private in Path(path).parents:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **values)

    private.mkdir()
    monkeypatch.setenv("HOME", str(private))
    monkeypatch.setattr(os, "stat", refuse)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != private and access(path, mode))
    home = tmp_path / "home"
    assert load_settings({}, home=str(home)).budget_path == home / "budget.sqlite"


def test_a_relative_folder_of_state_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    budget = load_settings({"XDG_STATE_HOME": "state"}, home=str(tmp_path / "home")).budget_path
    assert budget.is_relative_to(tmp_path / "user" / ".local" / "state")


def test_a_home_remembers_its_source_and_refuses_another(tmp_path: Path) -> None:
    first = load_settings({"CC_PIPELINE_SOURCE": "https://a.example", "CC_PIPELINE_HOME": str(tmp_path)})
    claim_home(first)
    claim_home(first)
    assert load_settings({"CC_PIPELINE_HOME": str(tmp_path)}).source == "https://a.example"
    other = load_settings({"CC_PIPELINE_SOURCE": "https://b.example", "CC_PIPELINE_HOME": str(tmp_path)})
    with pytest.raises(UserInputError, match=r"holds tables of https://a\.example.*CC_PIPELINE_HOME"):
        claim_home(other)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("SUBSETS", "warc,wat", "'wat'"),
        ("PUBLISH", "tables", "choose one of views, copy"),
        ("MAX_INDEX_GAPS", "1.1", "a share from 0 to 1"),
        ("MAX_INDEX_GAPS", "nan", "a share from 0 to 1"),
        ("RATE", "fast", "not a number"),
        ("RATE", "0", "above 0"),
        ("WAIT", "-1", "0 or more"),
        ("WAIT", "nan", "0 or more"),
        ("RATE", "inf", "above 0"),
        ("RATE", "nan", "above 0"),
        ("SOURCE", "ftp://x", "use a folder"),
        ("SOURCE", "s3://", "no host or bucket"),
        ("REDIRECTS", "https://me:pw@cdn.example", "host names"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(tmp_path: Path, name: str, value: str, told: str) -> None:
    with pytest.raises(UserInputError, match=told):
        load_settings({f"CC_PIPELINE_{name}": value, "CC_PIPELINE_HOME": str(tmp_path)})


def test_the_user_agent_names_the_project_and_the_contact(tmp_path: Path) -> None:
    env = {"CC_PIPELINE_HOME": str(tmp_path), "CC_PIPELINE_CONTACT": "mailto:me@example.org"}
    assert "cc_pipeline" in load_settings(env).user_agent
    assert "mailto:me@example.org" in load_settings(env).user_agent


def test_a_switch_is_on_or_off_and_nothing_else(tmp_path: Path) -> None:
    for text, on in (("yes", True), ("True", True), ("0", False), ("no", False), ("", False)):
        settings = load_settings({"CC_PIPELINE_MARKDOWN": text, "CC_PIPELINE_HOME": str(tmp_path)})
        assert settings.markdown is on
        # what is said wins over a default that is on
        assert yes_in({"CC_PIPELINE_ANY": text}, "ANY") is (on if text else None)
    with pytest.raises(UserInputError, match="CC_PIPELINE_MARKDOWN"):
        load_settings({"CC_PIPELINE_MARKDOWN": "ture", "CC_PIPELINE_HOME": str(tmp_path)})


#: A value that is not the default, for each field of its kind.
_OTHER: dict[type, object] = {str: "s3://else/where", int: 7, float: 0.25, tuple: ("warc", "robotstxt"), type(None): 3}
_CHOSEN = {
    "index": "btree", "publish": "copy", "engine": "local",
    "lake_endpoint": "http://127.0.0.1:9000", "s3_endpoint": "http://127.0.0.1:9000", "s3_region": "eu-west-1",
    "history_days": 30,
}  # fmt: skip
#: Fields that do not travel.
NO_TEXT = ("home", "budget", "rate_shares", "webhook", "of_extensions", "refetch")


def test_settings_travel_as_texts_without_the_home_and_without_secrets(tmp_path: Path) -> None:
    plain = load_settings({"CC_PIPELINE_HOME": str(tmp_path)})
    values: dict[str, Any] = {}
    for one in fields(plain):
        now = getattr(plain, one.name)
        if one.name not in NO_TEXT and not isinstance(now, Access):
            values[one.name] = _CHOSEN.get(one.name, True if isinstance(now, bool) else _OTHER[type(now)])
    full = replace(
        plain, **values, webhook="https://hook.example/secret", source_access=Access(user="me", password="s3cret")
    )
    there = tmp_path / "there"
    for settings in (plain, full):
        texts = as_texts(settings)
        assert not [text for text in texts.values() if "s3cret" in text or "secret" in text]
        # what the other process finds in its own environment does not get through
        own = {f"CC_PIPELINE_{name}": "17" for name in ("RATE", "CONCURRENCY", "WORKERS")}
        read = load_settings(own | {f"CC_PIPELINE_{name}": text for name, text in texts.items()}, home=str(there))
        assert replace(read, budget=None) == replace(
            settings, home=there, budget=None, webhook="", source_access=NO_ACCESS
        )


def test_a_source_has_the_credentials_of_its_address_or_host(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine c.example login you password there\n")

    def read(source: str) -> Settings:
        env = {
            "CC_PIPELINE_SOURCE": source,
            "CC_PIPELINE_HOME": str(tmp_path / "home"),
            "NETRC": str(netrc),
        }
        return load_settings(env)

    settings = read("https://me:pw@a.example/cc/")
    assert (settings.source, settings.source_access) == ("https://a.example/cc", Access("me", "pw"))
    assert "pw" not in str(settings)
    for source, access in (
        ("s3://commoncrawl", NO_ACCESS),
        ("https://b.example?token=1", Access(query="token=1")),
        ("/data/Smith, John/my crawls", NO_ACCESS),
        ("https://c.example", Access("you", "there")),
        ("https://d.example", NO_ACCESS),
    ):
        assert read(source).source_access == access, source
    assert read("/data/Smith, John/my crawls").source == "/data/Smith, John/my crawls"


def test_a_password_of_the_environment_goes_to_one_host(tmp_path: Path) -> None:
    given = {"CC_PIPELINE_SOURCE_USER": "me", "CC_PIPELINE_SOURCE_PASSWORD": "s3cret"}

    def sent(source: str = "", home: str = "home", **more: str) -> Access:
        env = {"CC_PIPELINE_SOURCE": source, "CC_PIPELINE_HOME": str(tmp_path / home), "HOME": str(tmp_path)}
        settings = load_settings(env | given | {f"CC_PIPELINE_{name}": text for name, text in more.items()})
        return settings.source_access

    mine, other, me = "https://a.example/cc", "https://b.example", Access("me", "s3cret")
    assert sent(mine) == me
    claim_home(load_settings({"CC_PIPELINE_SOURCE": mine, "CC_PIPELINE_HOME": str(tmp_path / "home")}))
    assert sent() == sent("https://A.example:443/more") == me
    # the home knows another host
    for source in (other, "http://a.example", str(tmp_path)):
        with pytest.raises(UserInputError, match="several hosts") as raised:
            sent(source, COLLINFO="https://a.example/collinfo.json")
        assert "s3cret" not in str(raised.value)
    # so does the environment, where a flag names another source
    env = {"CC_PIPELINE_SOURCE": mine, "CC_PIPELINE_HOME": str(tmp_path / "new")} | given
    with pytest.raises(UserInputError, match="several hosts"):
        load_settings(env, source=other)
    # Common Crawl's own bucket wants none, so nothing has to be said
    assert sent("https://data.commoncrawl.org", "public") == sent("s3://commoncrawl", "public") == NO_ACCESS


def test_a_bucket_named_commoncrawl_elsewhere_is_somebody_elses(tmp_path: Path) -> None:
    env = {"CC_PIPELINE_SOURCE": "s3://commoncrawl", "CC_PIPELINE_HOME": str(tmp_path)}
    assert load_settings(env).is_public
    assert not load_settings(env | {"CC_PIPELINE_S3_ENDPOINT": "https://s3.example"}).is_public


def test_a_source_in_the_home_moves_with_it_and_no_secret_is_noted(tmp_path: Path) -> None:
    claim_home(load_settings({"CC_PIPELINE_SOURCE": str(tmp_path / "copy"), "CC_PIPELINE_HOME": str(tmp_path)}))
    assert '"copy"' in (tmp_path / "home.json").read_text()
    web = tmp_path / "web"
    claim_home(load_settings({"CC_PIPELINE_SOURCE": "https://user:secret@a.example", "CC_PIPELINE_HOME": str(web)}))
    assert "secret" not in (web / "home.json").read_text()
    assert is_home_of(load_settings({"CC_PIPELINE_HOME": str(web)}))
