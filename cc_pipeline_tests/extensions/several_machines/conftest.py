"""The command line, as a person calls it."""

from cc_pipeline_tests.cli.conftest import cli

__all__ = ["cli"]
