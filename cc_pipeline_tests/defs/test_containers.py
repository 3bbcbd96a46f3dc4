"""The compose file of docs/deployment.md."""

from pathlib import Path

import yaml

from cc_pipeline.defs.instance import DAEMON_VARIABLES

FILE = Path(__file__).resolve().parents[2] / "docs" / "docker-compose.yaml"


def test_the_compose_file_has_a_database_a_webserver_and_a_daemon() -> None:
    services = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    assert {*services} == {"postgres", "webserver", "daemon"}
    for name, program in (("webserver", "dagster-webserver"), ("daemon", "dagster-daemon")):
        service = services[name]
        assert service["entrypoint"][0] == program and "-w" in service["entrypoint"]
        assert {"PGHOST", "PGPASSWORD", "DAGSTER_HOME", "CC_PIPELINE_HOME"} <= service["environment"].keys()
        assert service["depends_on"]["postgres"] == {"condition": "service_healthy"}
        named = service["environment"].keys() & DAEMON_VARIABLES.keys()
        assert {name: service["environment"][name] for name in named} == {
            name: DAEMON_VARIABLES[name] for name in named
        }
    # nobody but this machine reaches a webserver without a password
    assert services["webserver"]["ports"] == ["127.0.0.1:3000:3000"]
    assert "ports" not in services["postgres"]
