"""A step over many partitions records each when it is done, and each fails by itself.

Dagster's own way, a result for each asset, records all partitions of the run at its end, with the same figures, and
none when one fails.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TypeAlias

import dagster as dg

from cc_pipeline.defs.checks.looks import look_at_made
from cc_pipeline.defs.internals import plan_partition, recorded_by, without_record
from cc_pipeline.defs.partitions import KEYS_TAG, keys_of_range, range_of
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.run_notes import keys_in, note_tried
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault, UserInputError, disk_is_full
from cc_pipeline.extraction.isolation import is_nobodys
from cc_pipeline.workspace.workspace import Workspace

#: Failed partitions that the message of a run names; its metadata has them all, up to ``_KEPT``.
_NAMED = 5
_KEPT = 1_000
#: Characters of a reason there.
_REASON = 500
_FREE_SPACE = "Free some space; what is complete is kept and the next run goes on from there"
_MEND = "Mend what the reason names (the run's log has all of it), then materialize this partition again"
#: Key of that metadata.
FAILED = "failed partitions"
_TOLD = f'{{"CRAWL": ["TARGET", …], …}}, as in {KEYS_TAG}={{"CC-MAIN-2024-22": ["example.com"]}}'

#: Metadata of a partition and, where it is known, the version of its data.
Described: TypeAlias = tuple[Mapping[str, dg.MetadataValue], str | None]


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that failed: its key, the class of the error, and its words."""

    partition: str
    error_class: str
    reason: str


def wanted_keys(context: dg.AssetExecutionContext) -> list[str]:
    """The keys of the partitions a step is for: those that Dagster planned when it created the run, however that was
    launched, or those of the run's tag where Dagster knows of none (``crawl|target``).

    ``context.partition_keys`` is not asked: in a run of a job's backfill it gives the backfill's first partition.
    Raises ``UserInputError`` for a tag that cannot be read and for a run without partitions.
    """
    tags, definition = context.run.tags, context.assets_def.partitions_def
    first, last = range_of(tags)
    if first:
        found = keys_of_range(first, last, _keys_by_dimension(context.instance, definition))
        if not found:
            raise UserInputError(
                f"the run is for {first} to {last}, of which a key is no partition any more; choose again"
            )
        if KEYS_TAG in tags:
            context.log.warning(f"the tag {KEYS_TAG} is left aside: Dagster's own tags name partitions of the run")
        return ["|".join(keys) for keys in found]
    try:
        listed = keys_in(context.instance, tags) if isinstance(definition, dg.MultiPartitionsDefinition) else None
    except ValueError as error:
        raise UserInputError(f"the run's tag {KEYS_TAG} cannot be read ({error}); write it as {_TOLD}") from error
    if listed is None:
        raise UserInputError(f"the run names no partition; choose some in the UI, or name them in its tag: {_TOLD}")
    if not listed:
        raise UserInputError(f"the run's tag {KEYS_TAG} names no partition; write it as {_TOLD}")
    return list(dict.fromkeys(listed))


def _keys_by_dimension(instance: dg.DagsterInstance, definition: dg.PartitionsDefinition | None) -> list[Sequence[str]]:
    """All keys of each dimension of an asset's partitions, in Dagster's order."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        each = [dimension.partitions_def for dimension in definition.partitions_defs]
    else:
        each = [definition] if definition is not None else []
    return [one.get_partition_keys(dynamic_partitions_store=instance) for one in each]


class PartitionRun:
    """One step over the partitions ``keys``: which of them are left to do, and what became of each.

    ``keys`` of a tag may be any text: those that are no partitions fail by themselves. A retry of the step, and a run
    that goes on from one that failed, leaves out what was recorded there; where Dagster planned each partition of the
    run (a range), these are recorded again, since it would show them as failed otherwise.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        workspace: Workspace,
        at: Placement,
        keys: Sequence[str],
        assets: Iterable[str],
    ) -> None:
        self._context = context
        self._workspace = workspace
        self._at = at
        self._assets = list(assets)
        self._listed = not range_of(context.run.tags)[0]
        self._failed: list[FailedPartition] = []
        self._errors: dict[str, Exception] = {}
        self._asked = list(keys)
        done = self._done_before()
        self.left = [key for key in keys if key not in done]
        if len(self.left) < len(keys):
            context.log.info(f"{len(keys) - len(self.left):,} of {len(keys):,} partitions were recorded before")
        if self._listed:
            self._leave_out_unknown()

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Around the work on partitions. Where it ends early, and through no partition's fault (a full disk, a source
        that is gone, a signal), the run says that only those were tried that had failed by themselves: the others have
        not failed, and are due again."""
        self.in_hand(())
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, EnvironmentFault) or is_nobodys(error):
                # those that were located only were given with this error
                own = [key for key, one in self._errors.items() if one is not error and not is_nobodys(one)]
                # what ended the run may keep this from being written too, as a full disk
                with suppress(Exception):
                    self._say_tried(own)
            if not isinstance(error, CcPipelineError) and disk_is_full(error):
                raise PlaceFault(f"the disk is full ({str(error).partition(chr(10))[0]})", _FREE_SPACE) from error
            raise

    def in_hand(self, keys: Iterable[str]) -> None:
        """Says that ``keys`` are being tried from now on. Should the process be killed, one of them may be why."""
        self._say_tried([*self._errors, *keys])

    def _say_tried(self, keys: Iterable[str]) -> None:
        note_tried(self._context.instance, self._context.run.run_id, keys)

    def done(self, key: str, made: Mapping[str, Described]) -> Iterator[dg.AssetMaterialization]:
        """The records of a partition: one for each asset that was made."""
        partition, named = _named(key)
        for asset, (metadata, version) in made.items():
            tags = named | ({} if version is None else {"dagster/data_version": version})
            yield dg.AssetMaterialization(self._at.key(asset), partition=partition, metadata=dict(metadata), tags=tags)

    def failed(self, key: str, error: Exception, assets: Iterable[str] | None = None) -> None:
        """Notes that ``assets`` (default: all of the step) of a partition were not made, and says why on its page."""
        ours = isinstance(error, CcPipelineError)
        self._errors[key] = error
        self._failed.append(FailedPartition(key, type(error).__name__, str(error) if ours else repr(error)))
        words = str(error) if ours else "".join(traceback.format_exception(error)).rstrip()
        self._context.log.error(f"{key} failed: {words}")
        partition, named = _named(key)
        for asset in self._assets if assets is None else assets:
            if self._listed and "|" in key:
                plan_partition(self._context, self._at.key(asset), key)
            why = why_failed(self._failed[-1].reason, self._context.run.run_id)
            observed = dg.AssetObservation(self._at.key(asset), partition=partition, metadata=why, tags=named)
            self._context.log_event(observed)

    def end(self) -> Iterator[dg.AssetCheckEvaluation | dg.MaterializeResult[None]]:
        """The step's outputs. Raises ``dg.Failure`` with the list where partitions failed; the others were checked."""
        if self._failed:
            failed = {one.partition for one in self._failed}
            made = [key for key in self._asked if key not in failed]
            yield from look_at_made(self._context, self._workspace, self._at, self._assets, made, failed)
            raise dg.Failure(
                said(self._failed, len(self._asked)),
                {
                    "partitions failed": len(self._failed),
                    FAILED: dg.MetadataValue.json(
                        [asdict(one) | {"reason": one.reason[:_REASON]} for one in self._failed[:_KEPT]]
                    ),
                },
            )
        for asset in self._assets:
            yield without_record(self._at.key(asset))

    def _done_before(self) -> set[str]:
        """Partitions of which this run, or those that it goes on from, recorded every asset of the step."""
        run, instance = self._context.run, self._context.instance
        runs = [run.run_id] if self._context.retry_number else []
        parent = run.parent_run_id if self._listed else None
        while parent is not None and parent not in runs:
            before = instance.get_run_by_id(parent)
            # whoever repeats a run that was well means all of it
            if before is None or before.status is dg.DagsterRunStatus.SUCCESS:
                break
            runs.append(parent)
            parent = before.parent_run_id
        found = [recorded_by(instance, runs, self._at.key(asset)) for asset in self._assets] if runs else []
        return set.intersection(*found) if found else set()

    def _leave_out_unknown(self) -> None:
        crawls = set(self._at.crawl_keys(self._context.instance))
        domains = set(self._at.target_keys(self._context.instance))
        for key in list(self.left):
            crawl, _, domain = key.partition("|")
            if crawl in crawls and domain in domains:
                continue
            self.left.remove(key)
            what = f"{crawl!r} is no crawl" if crawl not in crawls else f"{domain!r} is no target"
            advice = "cc-pipeline crawls lists crawls" if crawl not in crawls else "add it with cc-pipeline targets add"
            self.failed(key, UserInputError(f"{what} that this home knows as a partition; {advice}"), ())


def said(failed: Sequence[FailedPartition], asked: int) -> str:
    """What failed, for a person: the words of a single error as they are, else those of the first few by partition."""
    if len(failed) == 1 and asked == 1:
        return failed[0].reason
    whats = [one.reason.partition("\n") for one in failed]
    named = "; ".join(f"{one.partition}: {what}" for one, (what, _, _) in zip(failed[:_NAMED], whats, strict=False))
    more = f"; and {len(failed) - _NAMED:,} more" if len(failed) > _NAMED else ""
    advices = {text: one.partition for one, (_, _, text) in zip(failed[:_NAMED], whats, strict=False) if text}
    advice = "\n".join(advices if len(advices) == 1 else [f"{one}: {text}" for text, one in advices.items()])
    others = ", the others are done" if len(failed) < asked else ""
    text = f"{len(failed):,} of {asked:,} partitions failed{others}. {named}{more}"
    return f"{text}\n{advice}" if advice else text


def failed_in(metadata: Mapping[str, object]) -> list[FailedPartition]:
    """The partitions that the metadata of a step's ``dg.Failure`` names; none for another failure."""
    value = metadata.get(FAILED)
    rows = value.value if isinstance(value, dg.JsonMetadataValue) else []
    return [FailedPartition(**row) for row in json.loads(json.dumps(rows))] if rows else []


def _named(key: str) -> tuple[str, dict[str, str]]:
    """A partition as an event names it, and the tags with which Dagster reads a key of several dimensions back."""
    crawl, found, domain = key.partition("|")
    if not found:
        return key, {}
    named = {"dagster/partition/crawl": crawl, "dagster/partition/target": domain}
    return dg.MultiPartitionKey({"crawl": crawl, "target": domain}), named


def why_failed(reason: str, run_id: str) -> dict[str, dg.MetadataValue]:
    """What a person reads on the page of a partition that failed, until it is made."""
    what, _, advice = reason[:_REASON].partition("\n")
    return {
        "failed because": dg.MetadataValue.text(what),
        "what to do": dg.MetadataValue.text(advice or _MEND),
        "run": dg.MetadataValue.dagster_run(run_id),
    }
