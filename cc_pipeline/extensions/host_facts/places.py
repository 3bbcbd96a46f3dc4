"""Where this extension keeps its files in a home."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.settings import Settings


def keyed_path(settings: Settings) -> Path:
    """The folder of path lists and footers of datasets published by host or URL key."""
    return settings.home / "keyed"


def datasets_path(settings: Settings) -> Path:
    """The folder of datasets that a person added: a YAML file each."""
    return settings.home / "datasets"
