"""Fills the table ``host_facts`` with the facts that datasets have of the hosts of targets in a crawl, a slice a
target.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.extensions.host_facts.dataset_files import dataset_transport, harvest_dataset
from cc_pipeline.extensions.host_facts.dataset_question import refuse_gaps
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.host_facts import HOST_FIELDS, RowsOfTargets, facts_of_targets
from cc_pipeline.extensions.host_facts.schemas import HOST_FACTS_SCHEMA
from cc_pipeline.extensions.host_facts.tables import FACTS
from cc_pipeline.extraction.lookup_notes import split_into_commits, split_into_passes
from cc_pipeline.extraction.run_inputs import run_and_replan
from cc_pipeline.extraction.slice_selection import TargetSlices, empty_obsolete_slices
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.lake.slice import Metrics, Slice, StageReport, slices_of
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.lake.target_definitions import find_part_slugs, read_definitions
from cc_pipeline.workspace.workspace import Workspace

#: Increases when the same inputs would give other rows.
VERSION = "1"
_HOST_COLUMNS = tuple(field.name for field in HOST_FIELDS)
_OTHER_FACTS_TYPE = HOST_FACTS_SCHEMA.field("other_facts").type


def fill_facts(workspace: Workspace, crawl: str, slugs: Sequence[str], datasets: Sequence[Dataset]) -> StageReport:
    """Writes the facts of ``datasets`` for the hosts of ``slugs`` in ``crawl``. Slices with unchanged inputs are
    skipped, and slices that a divided set no longer has are emptied.

    Raises ``IndexIncomplete`` if files of a dataset could not be read and the settings do not allow that;
    ``UserInputError`` for keys without a definition, datasets that cannot be combined, and a lookup above the cost
    limit; ``EnvironmentFault`` if the source or the lake fails, and as
    :func:`~cc_pipeline.extraction.run_inputs.run_and_replan` does.
    """
    return run_and_replan(
        workspace, crawl, slugs, lambda _: _fill_all(workspace, crawl, slugs, datasets), relocates=True
    )


def _fill_all(workspace: Workspace, crawl: str, slugs: Sequence[str], datasets: Sequence[Dataset]) -> StageReport:
    # Facts have no subsets. A divided set is filled part by part.
    parts = find_part_slugs(workspace.lake, slugs)
    slices_by_target = {slug: tuple(slices_of(crawl, target_parts)) for slug, target_parts in parts.items()}
    requested = TargetSlices(crawl, slices_by_target, dict.fromkeys(slices_by_target, ()))
    report = _fill(workspace, crawl, [slice_.target for slice_ in requested.requested_slices], datasets)
    empty_obsolete_slices(workspace, FACTS, requested)
    return requested.fold_by_target(report)


def _fill(workspace: Workspace, crawl: str, slugs: Sequence[str], datasets: Sequence[Dataset]) -> StageReport:
    started = time.monotonic()
    digests = facts_digests(workspace, crawl, slugs, datasets)
    stale = _stale(workspace, digests)
    requests = size = done_count = 0
    notes: dict[str, None] = {}
    for pass_targets in split_into_passes(workspace, stale):
        progress.report("facts", done_count, len(stale), crawl)
        facts = facts_of_targets(workspace, crawl, list(pass_targets.values()), datasets)
        refuse_gaps(workspace, facts, crawl)
        requests, size = requests + facts.requests, size + facts.bytes
        notes |= dict.fromkeys(facts.notes)
        for name, gaps in facts.gaps.items():
            notes[f"{len(gaps):,} of {facts.files[name]:,} files of {name} could not be read: {gaps[0]}"] = None
        pass_digests = {
            slice_: _with_gaps(digests[slice_]) if facts.gaps else digests[slice_] for slice_ in pass_targets
        }
        for commit_slices in split_into_commits(pass_digests):
            FACTS.commit(
                workspace.lake, commit_slices, {"host_facts": _rows(facts.table, pass_targets, commit_slices, datasets)}
            )
        done_count += len(pass_targets)
    if stale:
        progress.report("facts", done_count, len(stale), crawl)
    metrics = _slice_metrics(workspace, crawl, slugs)
    return FACTS.report(metrics, stale, started, bytes=size, requests=requests, notes=tuple(notes))


def facts_digests(
    workspace: Workspace, crawl: str, slugs: Sequence[str], datasets: Sequence[Dataset]
) -> dict[Slice, str]:
    """The input digest of each slice: of its target and of the files of each dataset. It costs a request for each
    outdated path list and each missing footer.
    """
    single = [slug for slug in slugs if SEPARATOR not in slug]
    texts = read_definitions(workspace.lake, [slug for slug in slugs if SEPARATOR in slug])
    versions = {slug: target.version for slug, target in workspace.targets(single).items()}
    versions |= {slug: version_of(text) for slug, text in texts.items()}
    dataset_versions = []
    for dataset in datasets:
        with dataset_transport(workspace, dataset) as reader:
            dataset_versions.append([dataset.version, harvest_dataset(workspace, dataset, crawl, reader).version])
    return {
        Slice(crawl, slug): FACTS.digest(version=VERSION, crawl=crawl, target=versions[slug], datasets=dataset_versions)
        for slug in slugs
    }


def _stale(workspace: Workspace, digests: Mapping[Slice, str]) -> list[Slice]:
    """The slices to fill. A slice that was filled with gaps is up to date if the settings allow gaps."""
    stored_digests = FACTS.read_input_digests(workspace.lake, digests.keys())
    allowed = workspace.settings.max_index_gaps > 0
    return [
        slice_
        for slice_, digest in digests.items()
        if stored_digests[slice_] not in ((digest, _with_gaps(digest)) if allowed else (digest,))
    ]


def _with_gaps(digest: str) -> str:
    """The input digest of a slice that was filled with gaps. It differs from the digest of a complete answer."""
    return compute_input_digest({"gaps": digest})


def _rows(
    facts: pa.Table, targets: Mapping[Slice, Target], slices: Mapping[Slice, str], datasets: Sequence[Dataset]
) -> pa.Table:
    """The table's rows of ``slices``: the rows of an answer, once for each target that has the host."""
    table_columns = [
        name for name in facts.column_names if name not in _HOST_COLUMNS and _is_table_column(facts.schema.field(name))
    ]
    other_columns = [name for name in facts.column_names if name not in _HOST_COLUMNS and name not in table_columns]
    parts = [HOST_FACTS_SCHEMA.empty_table()]
    by_target = RowsOfTargets(facts)
    for slice_ in slices:
        target_facts = by_target.rows_of(targets[slice_])
        columns = {name: target_facts[name] for name in (*_HOST_COLUMNS, *table_columns)}
        columns["target"] = pa.repeat(pa.scalar(slice_.target), target_facts.num_rows)
        columns["other_facts"] = _other_facts(target_facts, other_columns)
        columns["facts_from"] = pa.repeat(
            pa.scalar([dataset.name for dataset in datasets], pa.list_(pa.string())), target_facts.num_rows
        )
        filled = [
            columns[field.name] if field.name in columns else pa.nulls(target_facts.num_rows, field.type)
            for field in HOST_FACTS_SCHEMA
        ]
        parts.append(pa.Table.from_arrays(filled, schema=HOST_FACTS_SCHEMA))
    return pa.concat_tables(parts)


def _is_table_column(field: pa.Field) -> bool:
    place = HOST_FACTS_SCHEMA.get_field_index(field.name)
    return place >= 0 and HOST_FACTS_SCHEMA.field(place).type == field.type


def _other_facts(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The columns of datasets that the table does not have, as text."""
    if not names:
        return pa.nulls(rows.num_rows, _OTHER_FACTS_TYPE)
    texts = {name: rows[name].cast(pa.string()).to_pylist() for name in names}
    text_maps = [
        [(name, values[place]) for name, values in texts.items() if values[place] is not None]
        for place in range(rows.num_rows)
    ]
    return pa.array(text_maps, _OTHER_FACTS_TYPE)


def _slice_metrics(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[Slice, Metrics]:
    counts = count_rows(workspace.lake, "host_facts", {"crawl": crawl, "target": list(slugs)})
    slices = slices_of(crawl, slugs)
    versions = FACTS.read_content_metrics(workspace.lake, slices)
    return {slice_: {"rows:host_facts": counts.get((crawl, slice_.target), 0), **versions[slice_]} for slice_ in slices}
