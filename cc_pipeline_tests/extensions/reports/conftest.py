"""The homes that tests of published rows and of commands ask."""

from cc_pipeline_tests.cli.conftest import cli, rich, world
from cc_pipeline_tests.publish.conftest import asked_home, in_views

__all__ = ["asked_home", "cli", "in_views", "rich", "world"]
