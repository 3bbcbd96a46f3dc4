"""The folders of this extension in a home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.extensions.host_facts.registered_datasets import RegisteredDataset

#: Prefix of the assets of added datasets.
ANNOTATION: Final = "annotation_"


def keyed_path(settings: Settings) -> Path:
    """The folder of path lists and footers of datasets keyed by host or URL."""
    return settings.home / "keyed"


def answers_path(settings: Settings) -> Path:
    """The folder of cached answers of datasets."""
    return settings.cache_path / "facts"


def datasets_path(settings: Settings) -> Path:
    """The folder of added datasets: a YAML file each."""
    return settings.home / "datasets"


def asset_of(dataset: str) -> str:
    """The asset of an added dataset."""
    return ANNOTATION + dataset.replace("-", "_")


def added_datasets(settings: Settings) -> dict[str, RegisteredDataset]:
    """The datasets that the user added to the home, by name. Empty if one of their files is invalid, which the check of
    its asset and ``cc-pipeline facts datasets`` report.
    """
    if not datasets_path(settings).is_dir():
        return {}
    # A slow import: every home is asked for definitions, and few homes have added datasets.
    from cc_pipeline.extensions.host_facts.registered_datasets import known_datasets  # noqa: PLC0415

    try:
        return {
            name: registered for name, registered in known_datasets(settings).items() if registered.file is not None
        }
    except CcPipelineError:
        return {}
