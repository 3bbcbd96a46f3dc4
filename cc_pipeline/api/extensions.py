"""The installed extensions, with what each adds to a home."""

from __future__ import annotations

import warnings
from typing import Any

from cc_pipeline.checks.extensions import ListedExtension, list_extensions, uses_joint
from cc_pipeline.extension import Extension
from cc_pipeline.settings import Settings


def installed_extensions(settings: Settings) -> list[ListedExtension]:
    """Returns all installed extensions, those of this project first. Loads Dagster."""
    exclude_invalid_extensions()
    return list_extensions(settings, _definitions_of)


def exclude_invalid_extensions() -> None:
    """Excludes the extensions whose definitions Dagster does not accept beside the core's, as the code location
    does."""
    from cc_pipeline.defs.declared.build import everything

    with warnings.catch_warnings():
        # the caller lists the excluded extensions
        warnings.simplefilter("ignore")
        everything()


def _definitions_of(extension: Extension) -> Any:
    if not uses_joint(extension, "definitions"):
        return None
    from cc_pipeline.defs.home_namespace import HomeNamespace

    return extension.definitions(HomeNamespace())
