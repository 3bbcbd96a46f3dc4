"""Where this extension keeps its files in a home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.extensions.host_facts.known import Known

#: How the assets of datasets that a person added begin.
ANNOTATION: Final = "annotation_"


def keyed_path(settings: Settings) -> Path:
    """The folder of path lists and footers of datasets published by host or URL key."""
    return settings.home / "keyed"


def datasets_path(settings: Settings) -> Path:
    """The folder of datasets that a person added: a YAML file each."""
    return settings.home / "datasets"


def asset_of(dataset: str) -> str:
    """The asset of a dataset that was added."""
    return ANNOTATION + dataset.replace("-", "_")


def added_datasets(settings: Settings) -> dict[str, Known]:
    """The datasets that a person added to the home, by name; none where a file of one is wrong, which the check of its
    asset and ``cc-pipeline facts datasets`` say."""
    if not datasets_path(settings).is_dir():
        return {}
    # the definitions of each home ask, and few homes have any
    from cc_pipeline.extensions.host_facts.known import known_datasets  # noqa: PLC0415

    try:
        return {
            name: registered for name, registered in known_datasets(settings).items() if registered.file is not None
        }
    except CcPipelineError:
        return {}
