"""Builds the definitions of a home: those of the core, and those of the extensions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import history, sensors
from cc_pipeline.defs.assets import catalog, common_crawl, extraction, sources, warehouse
from cc_pipeline.defs.automation_state import is_enabled
from cc_pipeline.defs.home_namespace import JOBS, OWN_HOME, HomeNamespace
from cc_pipeline.defs.resources import make_resource
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.extension import extensions
from cc_pipeline.index.locators import refuse_unknown_kind
from cc_pipeline.settings import PREFIX
from cc_pipeline.settings.reading import settable_names


def build_own_home() -> dg.Definitions:
    """Returns the definitions of our own code location: one home, and the executor (one process per run, parallel work
    inside the stages)."""
    return build_home(OWN_HOME, is_automatic=is_enabled(OWN_HOME.load_settings()), executor=dg.in_process_executor)


def build_namespace(
    prefix: tuple[str, ...],
    group: str,
    targets: Sequence[str],
    places: Mapping[str, object],
    settings: Mapping[str, object],
) -> HomeNamespace:
    """Returns the namespace of a home beside others, as ``cc_pipeline.dagster.build_defs`` describes it. Raises as that
    does."""
    setting_names = settable_names()
    for name in settings:
        if name.lower() not in (*setting_names, "lake", "collinfo"):
            raise UserInputError(describe_unknown_name("setting", name, setting_names))
    namespace = HomeNamespace(
        prefix,
        group,
        is_only_home=False,
        targets=tuple(targets),
        places={name: str(place) for name, place in places.items() if place},
        settings={PREFIX + name.upper(): _to_text(value) for name, value in settings.items()},
    )
    for text in targets:
        parse_target(text)
    # wrong settings are reported where they were written, not in the first run
    refuse_unknown_kind(namespace.load_settings().index)
    return namespace


def _to_text(value: object) -> str:
    """Returns a value as text for its variable."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def build_home(
    namespace: HomeNamespace, *, is_automatic: bool, executor: dg.ExecutorDefinition | None = None
) -> dg.Definitions:
    """Returns a home's assets, checks, jobs, sensors, schedules and its resource. With ``is_automatic``, sensors and
    schedules are on from the start."""
    with warnings.catch_warnings():
        # tests cover the parts that Dagster may change
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        added = [addition for extension in extensions() if (addition := extension.definitions(namespace)) is not None]
        return dg.Definitions.merge(_build_core(namespace, added, is_automatic, executor), *added)


def _build_core(
    namespace: HomeNamespace,
    added: Sequence[dg.Definitions],
    is_automatic: bool,
    executor: dg.ExecutorDefinition | None,
) -> dg.Definitions:
    makers = [*catalog.define(namespace), *extraction.define(namespace), *sources.define(namespace)]
    jobs: list[Any] = [
        catalog.harvest_job(namespace),
        extraction.listed_job(namespace),
        *warehouse.jobs(namespace),
        *([history.job(namespace)] if namespace.is_only_home else []),
    ]
    jobs_by_name = {name: job for name in JOBS for job in jobs if job.name == namespace.qualify(name)}
    return dg.Definitions(
        assets=dg.with_source_code_references(
            [
                *common_crawl.define(namespace),
                *makers,
                *catalog.define_on_request(namespace),
                *warehouse.define(
                    namespace,
                    [*_published(makers), *(key for addition in added for key in _published(addition.assets or ()))],
                ),
            ]
        ),
        asset_checks=[catalog.define_index_check(namespace)],
        jobs=jobs,
        sensors=sensors.define(namespace, jobs_by_name, is_automatic=is_automatic),
        schedules=sensors.define_schedules(namespace, jobs_by_name, is_automatic=is_automatic),
        resources={namespace.resource: make_resource(namespace)},
        executor=executor,
    )


def _published(assets: Iterable[object]) -> list[dg.AssetKey]:
    """Returns the assets whose tables the published file shows: those of the lake, except what only a harvest reads."""
    specs = [spec for asset in assets if isinstance(asset, dg.AssetsDefinition) for spec in asset.specs]
    return [spec.key for spec in specs if "deltalake" in spec.kinds and spec.key.path[-1] != "index_manifest"]
