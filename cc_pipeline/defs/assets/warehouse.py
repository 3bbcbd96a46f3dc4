"""The published DuckDB file for analysts, and the maintenance of the lake."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg

from cc_pipeline.defs.checks import as_results, checks_of, evaluate_everything, evaluate_partitions, make_specs
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.publication import publication_metadata
from cc_pipeline.defs.recording import logged_progress
from cc_pipeline.maintenance.maintain import merge_and_publish, run_maintenance


def define(namespace: HomeNamespace, published: Iterable[dg.AssetKey]) -> list[dg.AssetsDefinition]:
    """Returns the asset ``warehouse``, which is made of the ``published`` assets."""

    @dg.asset(
        key_prefix=namespace.prefix or None,
        group_name=namespace.group_of("analytics"),
        kinds={"duckdb"},
        deps=[*published],
        code_version="1",
        required_resource_keys={namespace.resource},
        pool=namespace.qualify("warehouse"),
        check_specs=make_specs(namespace, ["warehouse"]),
        # weekly_maintenance publishes each week, automation after every change
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=30), warn_window=timedelta(days=8)),
    )
    def warehouse(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        """``cc.duckdb``: one view per table, over the files of a fixed version. Each capture is there once.

        The file can be opened read-only at any time, also during a publication.
        """
        workspace = namespace.workspace(context)
        publication = merge_and_publish(workspace)
        context.log.info(f"published {publication.path}")
        yield dg.MaterializeResult(metadata=publication_metadata(publication))
        yield from as_results(evaluate_partitions(namespace, workspace, context.log, checks_of(["warehouse"]), ()))

    return [warehouse]


def jobs(namespace: HomeNamespace) -> list[Any]:
    """Returns the jobs that publish, maintain and check a home."""
    needs: dict[str, Any] = {"required_resource_keys": {namespace.resource}}

    @dg.op(name=namespace.qualify("tidy_tables"), pool=namespace.qualify("warehouse"), **needs)
    def tidy_tables(context: dg.OpExecutionContext) -> None:
        with logged_progress(context.log):
            report = run_maintenance(namespace.workspace(context))
        context.add_output_metadata(
            {
                "files merged": sum(report.merged.values()),
                "files deleted": sum(report.deleted.values()),
                "left by killed processes, deleted": report.leftovers,
            }
        )

    @dg.op(name=namespace.qualify("evaluate_all_checks"), out={}, **needs)
    def evaluate_all_checks(context: dg.OpExecutionContext) -> Iterator[dg.AssetCheckEvaluation]:
        yield from evaluate_everything(namespace, namespace.workspace(context), context.log)

    @dg.job(name=namespace.qualify("maintenance"))
    def maintenance() -> None:
        """Merges small files of the tables, publishes, and deletes files superseded for a week. For the schedule
        weekly_maintenance; a command does the same: cc-pipeline automation clean."""
        tidy_tables()

    @dg.job(name=namespace.qualify("check_everything"))
    def check_everything() -> None:
        """Evaluates every check over the whole lake; a run's own checks examine its partitions. For the schedule
        weekly_checks; a command does the same: cc-pipeline doctor --checks."""
        evaluate_all_checks()

    publish = dg.define_asset_job(
        namespace.qualify("publish"),
        dg.AssetSelection.assets(namespace.key("warehouse")),
        description="Publishes a new snapshot of cc.duckdb. For people, and the sensor publication.",
    )
    return [publish, maintenance, check_everything]
