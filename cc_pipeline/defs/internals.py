"""Everything that reaches behind Dagster's public interface, so that an upgrade breaks one small file.

Belongs here: each name of Dagster that is private or not marked public and does more than read, with the reason.
Not here: anything the public interface can do. ``test_internals`` says which name an upgrade has moved.
"""

import warnings
from pathlib import Path

import dagster as dg


def attach_metadata(
    context: dg.AssetExecutionContext, metadata: dict[str, dg.MetadataValue], asset: str, key: str
) -> None:
    """Adds ``metadata`` to one partition of ``asset``, whose key the run is known to target.

    ``context.add_asset_metadata`` lists every partition of the run from the event log to check each key: 23 ms a
    call at 100 partitions, growing with their number. The accumulator behind it costs microseconds. Where it is not
    found, the public way is taken.
    """
    step = getattr(context.op_execution_context, "_step_execution_context", None)
    accumulator = getattr(step, "_metadata_accumulator", None)
    add = getattr(accumulator, "with_additional_asset_metadata", None)
    if step is None or add is None:
        context.add_asset_metadata(metadata, asset_key=asset, partition_key=key)
        return
    step._metadata_accumulator = add(asset_key=dg.AssetKey(asset), metadata=metadata, partition_key=key)


def definitions_in(folder: Path) -> dg.Definitions:
    """What ``load_from_defs_folder`` loads from the project around ``folder``, without the component types that are
    installed beside it.

    Those are for the UI's pages about components. Describing them loads every package that offers some, and takes
    longer than all definitions of ours.
    """
    with warnings.catch_warnings():
        # as the public function does
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        tree = dg.ComponentTree.for_project(folder)
        return tree.build_defs(tree.defs_module_path)


def instance_in(folder: Path) -> dg.DagsterInstance:
    """The instance whose ``dagster.yaml`` lies in ``folder``.

    The public way, ``DagsterInstance.get``, takes the folder from the environment of the process.
    """
    return dg.DagsterInstance.from_config(str(folder))


def end_run(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
    """Marks a run whose process is gone as failed and frees the pool slots it holds.

    The public interface can only ask the process of a run to end it.
    """
    instance.report_run_failed(run, why)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
