"""A home of somebody else executes nothing that its ``dagster.yaml`` names; and what the compose file starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.defs.instance import DAGSTER_YAML, open_instance, prepare_instance, workspace_file
from cc_pipeline.defs.instance_config import read_config
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings import load_settings

HANDLER = """\
telemetry: {{enabled: false}}
python_logs:
  dagster_handler_config:
    handlers: {{evil: {{(): subprocess.run, args: [touch, '{mark}'], level: DEBUG}}}}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HANDLER, 3),
        ("run_launcher: {module: evil, class: A}", 1),
        ("\nsecrets:\n  custom:\n    module: os\n    class: A", 4),
        ("storage:\n  custom: {config: [{deep: [{'module': dagsterx.y}]}]}", 2),
        ("instance_class: {module: dagster-evil, class: A}", 1),
        ("a: &m module\nrun_launcher: {*m : evil, class: A}", 1),
        ("a: &m {module: evil}\nrun_launcher:\n  <<: *m\n  class: A", 1),
        ("run_launcher: {module: [dagster], class: A}", 1),
        ("run_launcher: {module: cc_pipelines, class: A}", 1),
    ],
)
def test_code_of_others_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "dagster.yaml").write_text(text.format(mark="x") if text is HANDLER else text, "utf-8")
    with pytest.raises(EnvironmentFault, match=rf"dagster\.yaml: line {line} "):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        DAGSTER_YAML,
        "a: &a [*a]",
        "compute_logs: {module: dagster_aws.s3.compute_log_manager, class: S3ComputeLogManager}",
        "run_launcher: {module: dagster, class: DefaultRunLauncher}\npython_logs: {python_log_level: INFO}",
    ],
)
def test_code_of_dagster_and_ours_is_loaded(tmp_path: Path, text: str) -> None:
    (tmp_path / "dagster.yaml").write_text(text, "utf-8")
    assert len(read_config(tmp_path)) == len({line.split(":")[0] for line in text.splitlines() if line[:1].isalpha()})


@pytest.mark.parametrize("place", ["home", "home/dagster", "home/dagster/dagster.yaml"])
def test_what_everybody_may_write_to_is_refused(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "home" / "dagster"
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    (tmp_path / place).chmod(0o775)
    read_config(folder)
    (tmp_path / place).chmod(0o777)
    with pytest.raises(EnvironmentFault, match="everybody may write to"):
        read_config(folder)


def test_a_command_executes_nothing_of_a_strangers_home(tmp_path: Path) -> None:
    settings = load_settings({}, home=str(tmp_path / "home"), source=str(tmp_path))
    prepare_instance(settings)
    config, mark = settings.dagster_home / "dagster.yaml", tmp_path / "executed"
    config.write_text(HANDLER.format(mark=mark), "utf-8")
    for open_home in (open_instance, prepare_instance):  # the UI opens the instance in a process of its own
        with pytest.raises(EnvironmentFault, match="line 3 names code"):
            open_home(settings)
    config.write_text(DAGSTER_YAML, "utf-8")
    module = "secrets: {custom: {module: dagster._core.test_utils, class: MockSecretsLoader, "
    config.write_text(module + "config: {env_vars: {PYTHONPATH: /evil}}}}", "utf-8")
    with pytest.raises(EnvironmentFault, match="PYTHONPATH"):
        open_instance(settings)
    config.write_text(DAGSTER_YAML, "utf-8")
    (settings.dagster_home / ".env").write_text("PYTHONPATH=/evil\n", "utf-8")
    with pytest.raises(EnvironmentFault, match="variables of this file"):
        open_instance(settings)
    assert not mark.exists()


def test_a_ui_loads_our_definitions_whatever_the_home_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings({}, home=str(tmp_path / "home"), source=str(tmp_path))
    prepare_instance(settings)
    (settings.dagster_home / "workspace.yaml").write_text("load_from: [python_file: evil.py]\n", "utf-8")
    monkeypatch.setattr("cc_pipeline.defs.instance.__file__", str(tmp_path / "site-packages/cc_pipeline/defs/x.py"))
    assert "cc_pipeline.definitions" in workspace_file(settings).read_text("utf-8")
