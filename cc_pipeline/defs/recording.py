"""Records each partition of a step when it is done; each partition fails by itself.

Dagster's own way is one result for each asset: it records all partitions of the run at its end, with the same metrics,
and none if one fails.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

import dagster as dg

from cc_pipeline.defs.checks.check_runs import check_made_partitions
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.internals import find_dependent_assets
from cc_pipeline.defs.partitions import PARTITION_TAG, StepContext, keys_of_range, range_of
from cc_pipeline.defs.run_failures import FAILED, FailedPartition, failed_partitions_table
from cc_pipeline.defs.run_notes import note_tried
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault, UserInputError, disk_is_full
from cc_pipeline.extraction.failure_isolation import affects_all_targets, find_throttled_object
from cc_pipeline.workspace.workspace import Workspace

#: The most failed partitions in the message of a run, and in its metadata.
_MAX_NAMED_PARTITIONS = 5
_MAX_TABLE_ROWS = 1_000
#: The most characters of a reason in the metadata.
_MAX_REASON_LENGTH = 500
_FREE_SPACE = "Free some space; committed work is kept, and the next run continues from there"
_MEND = "Fix what the reason names (the run's log has all of it), then materialize this partition again"

#: Metadata of a partition, and the version of its data if it is known.
Described: TypeAlias = tuple[Mapping[str, dg.MetadataValue], str | None]


def read_planned_keys(context: dg.AssetExecutionContext) -> list[str]:
    """Returns the keys of a step's partitions: those that Dagster planned when it created the run, however it was
    launched.

    ``context.partition_keys`` is not used: in a run of a job's backfill it is the backfill's first partition. Raises
    ``UserInputError`` for a run without partitions.
    """
    first, last = range_of(context.run.tags)
    if not first:
        raise UserInputError(
            "the run names no partition\nChoose some in the UI. The job extract_targets takes any of them, in its "
            "configuration"
        )
    key_tuples = keys_of_range(first, last, _keys_by_dimension(context.instance, context.assets_def.partitions_def))
    if not key_tuples:
        raise UserInputError(
            f"nothing was run: the first or the last partition of the range {first} to {last} no longer exists. Launch "
            "a run of existing partitions"
        )
    return ["|".join(keys) for keys in key_tuples]


def read_job_partition(context: dg.OpExecutionContext) -> str:
    """Returns the partition of a run of a job of one op. Raises ``UserInputError`` for a run without one."""
    key = context.run.tags.get(PARTITION_TAG, "")
    if not key:
        raise UserInputError("the run names no partition\nChoose one in the Launchpad")
    return key


def _keys_by_dimension(instance: dg.DagsterInstance, definition: dg.PartitionsDefinition | None) -> list[Sequence[str]]:
    """Returns all keys of each dimension of an asset's partitions, in Dagster's order."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimension_partitions = [dimension.partitions_def for dimension in definition.partitions_defs]
    else:
        dimension_partitions = [definition] if definition is not None else []
    return [partitions.get_partition_keys(dynamic_partitions_store=instance) for partitions in dimension_partitions]


class PartitionRun:
    """One step over the partitions ``keys``, and the result of each. It has no outputs, since Dagster would record all
    partitions of the run with each. So no later step runs, and the checks are evaluated here.

    With ``from_config``, a person or a program wrote the keys: those that are no partitions fail by themselves, and
    ``remaining_keys`` are the others."""

    def __init__(
        self,
        context: StepContext,
        workspace: Workspace,
        namespace: HomeNamespace,
        keys: Sequence[str],
        assets: Iterable[str],
        *,
        from_config: bool = False,
    ) -> None:
        self._context = context
        self._workspace = workspace
        self._namespace = namespace
        self._assets = list(assets)
        self._failed: list[FailedPartition] = []
        self._errors: dict[str, Exception] = {}
        self._requested_keys = list(keys)
        self.remaining_keys = list(keys)
        if from_config:
            if not keys:
                raise UserInputError('the run names no partition\nName some: {"CC-MAIN-2024-22": ["example.com"]}')
            self._leave_out_unknown()
        elif isinstance(context, dg.AssetExecutionContext):
            _refuse_dependent_assets(context)

    @contextmanager
    def track_attempts(self) -> Iterator[None]:
        """Wraps the work on partitions. If it ends early for a reason that affects all partitions (a full disk, an
        unavailable source, a signal), the run notes only the partitions that failed by themselves as tried: the others
        have not failed, and are due again."""
        self.mark_started(())
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, EnvironmentFault) or affects_all_targets(error):
                # partitions that were only located were reported with this error
                failed_keys = [
                    key
                    for key, partition_error in self._errors.items()
                    if partition_error is not error and not affects_all_targets(partition_error)
                ]
                if find_throttled_object(error) is not None:
                    # the source refuses all requests, so the partitions that met it first did not fail either
                    failed_keys = [key for key in failed_keys if find_throttled_object(self._errors[key]) is None]
                # the cause, such as a full disk, may prevent this write too
                with suppress(Exception):
                    self._note_tried(failed_keys)
            if not isinstance(error, CcPipelineError) and disk_is_full(error):
                raise PlaceFault(f"the disk is full ({str(error).partition(chr(10))[0]})", _FREE_SPACE) from error
            raise

    def mark_started(self, keys: Iterable[str]) -> None:
        """Notes that ``keys`` are being tried from now on. If the process is killed, one of them may be the cause."""
        self._note_tried([*self._errors, *keys])

    def _note_tried(self, keys: Iterable[str]) -> None:
        note_tried(self._context.instance, self._context.run.run_id, keys)

    def record_done(self, key: str, metadata_by_asset: Mapping[str, Described]) -> Iterator[dg.AssetMaterialization]:
        """Yields the records of a partition: one for each asset that was made."""
        partition, partition_tags = _event_partition(key)
        for asset, (metadata, version) in metadata_by_asset.items():
            tags = partition_tags | ({} if version is None else {"dagster/data_version": version})
            yield dg.AssetMaterialization(
                self._namespace.key(asset), partition=partition, metadata=dict(metadata), tags=tags
            )

    def record_failure(self, key: str, error: Exception, assets: Iterable[str] | None = None) -> None:
        """Records that ``assets`` (default: all of the step) of a partition were not made, with the reason on its
        page."""
        is_own_error = isinstance(error, CcPipelineError)
        self._errors[key] = error
        self._failed.append(FailedPartition(key, type(error).__name__, str(error) if is_own_error else repr(error)))
        error_text = str(error) if is_own_error else "".join(traceback.format_exception(error)).rstrip()
        self._context.log.error(f"{key} failed: {error_text}")
        partition, partition_tags = _event_partition(key)
        for asset in self._assets if assets is None else assets:
            metadata = failure_metadata(self._failed[-1].reason, self._context.run.run_id)
            observed = dg.AssetObservation(
                self._namespace.key(asset), partition=partition, metadata=metadata, tags=partition_tags
            )
            self._context.log_event(observed)

    @property
    def reasons(self) -> dict[str, str]:
        """The first line of the reason of each failed partition so far, by key."""
        return {failure.partition: failure.reason.partition("\n")[0] for failure in self._failed}

    def end(self) -> Iterator[dg.AssetCheckEvaluation]:
        """Evaluates the checks of the made partitions. Raises ``dg.Failure`` with the list of failed partitions, if
        any."""
        failed = self.reasons
        made_keys = [key for key in self._requested_keys if key not in failed]
        yield from check_made_partitions(
            self._context, self._workspace, self._namespace, self._assets, made_keys, failed
        )
        if self._failed:
            raise dg.Failure(
                summarize_failures(self._failed, len(self._requested_keys)),
                {
                    "partitions failed": len(self._failed),
                    FAILED: failed_partitions_table(
                        replace(failure, reason=failure.reason[:_MAX_REASON_LENGTH])
                        for failure in self._failed[:_MAX_TABLE_ROWS]
                    ),
                },
            )

    def _leave_out_unknown(self) -> None:
        crawls = set(self._namespace.crawl_keys(self._context.instance))
        domains = set(self._namespace.target_keys(self._context.instance))
        for key in list(self.remaining_keys):
            crawl, _, domain = key.partition("|")
            if crawl in crawls and domain in domains:
                continue
            self.remaining_keys.remove(key)
            problem = f"{crawl!r} is no crawl" if crawl not in crawls else f"{domain!r} is no target"
            advice = (
                "to list crawls: cc-pipeline crawls" if crawl not in crawls else "to add it: cc-pipeline targets add"
            )
            self.record_failure(key, UserInputError(f"{problem} of which this home has a partition key; {advice}"), ())


def _refuse_dependent_assets(context: dg.AssetExecutionContext) -> None:
    """Raises ``UserInputError`` if the run has assets that depend on this step's: Dagster would skip them, and the run
    would end green."""
    dependents = sorted(key.to_user_string() for key in find_dependent_assets(context))
    if dependents:
        raise UserInputError(
            f"Dagster would skip {', '.join(dependents)} in this run\nLaunch these assets in another run, after this "
            "one"
        )


def summarize_failures(failed: Sequence[FailedPartition], total: int) -> str:
    """Describes failed partitions for a person: the message of a single error, else the messages of the first few by
    partition."""
    if len(failed) == 1 and total == 1:
        return failed[0].reason
    reason_parts = [failure.reason.partition("\n") for failure in failed]
    examples = "; ".join(
        f"{failure.partition}: {problem}"
        for failure, (problem, _, _) in zip(failed[:_MAX_NAMED_PARTITIONS], reason_parts, strict=False)
    )
    remainder = f"; and {len(failed) - _MAX_NAMED_PARTITIONS:,} more" if len(failed) > _MAX_NAMED_PARTITIONS else ""
    partitions_by_advice: dict[str, list[str]] = {}
    for failure, (_, _, text) in zip(failed[:_MAX_NAMED_PARTITIONS], reason_parts, strict=False):
        if text:
            partitions_by_advice.setdefault(text, []).append(failure.partition)
    advice = "\n".join(
        partitions_by_advice
        if len(partitions_by_advice) == 1
        else [f"{', '.join(partitions)}: {text}" for text, partitions in partitions_by_advice.items()]
    )
    success_text = ", the others are done" if len(failed) < total else ""
    text = f"{len(failed):,} of {total:,} partitions failed{success_text}. {examples}{remainder}"
    return f"{text}\n{advice}" if advice else text


def _event_partition(key: str) -> tuple[str, dict[str, str]]:
    """Returns a partition as it is named in events, and the tags from which Dagster reads a key of several
    dimensions."""
    crawl, separator, domain = key.partition("|")
    if not separator:
        return key, {}
    tags = {"dagster/partition/crawl": crawl, "dagster/partition/target": domain}
    return dg.MultiPartitionKey({"crawl": crawl, "target": domain}), tags


def failure_metadata(reason: str, run_id: str) -> dict[str, dg.MetadataValue]:
    """Returns the metadata for the page of a partition that failed; it is shown until the partition is made."""
    problem, _, advice = reason[:_MAX_REASON_LENGTH].partition("\n")
    return {
        "failed because": dg.MetadataValue.text(problem),
        "what to do": dg.MetadataValue.text(advice or _MEND),
        "run": dg.MetadataValue.dagster_run(run_id),
    }
