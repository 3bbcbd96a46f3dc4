"""A home within a Dagster project of others: :func:`build_defs`, and the component for ``defs.yaml``.

Dagster's tools load this module to list components, so it loads nothing else of the program.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from cc_pipeline.defs.home_namespace import HomeNamespace


def build_defs(
    home: str | Path | None = None,
    key_prefix: str | Sequence[str] | None = None,
    *,
    source: str | None = None,
    group: str | None = None,
    targets: Sequence[str] = (),
    automation: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Returns the definitions of one home, to be merged with others: ``dg.Definitions.merge(build_defs(…), yours)``.

    It has no executor, and its only resource has a key that starts with the prefix, so that nothing clashes. ``home``
    is a folder, and ``source`` the root of a Common Crawl bucket (a folder, ``https://`` or ``s3://``); without them
    the variables ``CC_PIPELINE_HOME`` and ``CC_PIPELINE_SOURCE`` count, and with a ``home`` the source is what it was
    used with, or Common Crawl's own. ``key_prefix`` goes before the keys of assets and, with underlines, before the
    names of jobs, sensors, schedules, pools, partition definitions and groups; homes in one code location need
    different ones. ``group`` is one group for all assets. ``targets`` (docs/targets.md) are watched beside the home's
    own list. With ``automation`` sensors and schedules are on from the start. ``settings`` are those of
    docs/settings.md without ``CC_PIPELINE_``, such as ``{"crawls": "newest"}``; they win over the environment.

    Raises ``cc_pipeline.errors.UserInputError`` for invalid arguments.
    """
    from cc_pipeline.defs.build import build_home, build_namespace  # noqa: PLC0415

    locations = {"home": home, "source": source}
    namespace = build_namespace(_parts(key_prefix), group or "", targets, locations, settings or {})
    return build_home(namespace, is_automatic=automation)


def names(key_prefix: str | Sequence[str] | None = None) -> "HomeNamespace":
    """Returns the names of the home with this prefix, for downstream assets of your own: ``names("books")`` has
    ``.key("page_text")``, the key of an asset, and the partition definitions ``.pairs`` (crawl × target), ``.crawl``
    and ``.target``."""
    from cc_pipeline.defs.home_namespace import HomeNamespace  # noqa: PLC0415

    return HomeNamespace(_parts(key_prefix), is_only_home=False)


def _parts(key_prefix: str | Sequence[str] | None) -> tuple[str, ...]:
    return (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix or ())


class _ScaffoldParams(BaseModel):
    home: str = Field(default="cc_home", description="Folder of the home, relative to the project.")
    source: str | None = Field(default=None, description="Root of the bucket to read (default: Common Crawl's).")
    prefix: str | None = Field(default=None, description="Prefix of all asset keys, for a second home.")


class CommonCrawlScaffolder(dg.Scaffolder[_ScaffoldParams]):
    """Writes the ``defs.yaml`` of a home."""

    @classmethod
    def get_scaffold_params(cls) -> type[_ScaffoldParams]:
        """Returns the model of the parameters of ``dg scaffold defs``."""
        return _ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[_ScaffoldParams]) -> None:
        """Writes the file, with the attributes that people change."""
        params = request.params
        attributes = {"home": params.home, "source": params.source, "key_prefix": params.prefix}
        known_attributes = {name: value for name, value in attributes.items() if value}
        dg.scaffold_component(request, {**known_attributes, "targets": [], "automation": False})


@dg.scaffold_with(CommonCrawlScaffolder)
class CommonCrawlHome(dg.Component, dg.Model, dg.Resolvable):
    """A home of cc_pipeline: sites out of Common Crawl, as tables. The attributes are those of
    ``cc_pipeline.dagster.build_defs``; a ``home`` that is no absolute path starts at the project's folder."""

    home: str
    source: str | None = None
    key_prefix: str | list[str] = Field(default_factory=list)
    group: str | None = None
    targets: list[str] = Field(default_factory=list)
    automation: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the home."""
        return build_defs(
            home=context.project_root / Path(self.home).expanduser(),
            source=self.source,
            key_prefix=self.key_prefix,
            group=self.group,
            targets=self.targets,
            automation=self.automation,
            settings=self.settings,
        )
