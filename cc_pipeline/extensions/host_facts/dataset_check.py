"""The result of the check of added datasets."""

from __future__ import annotations

from cc_pipeline.checks.scope import CheckResult, abbreviate_keys
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extensions.host_facts.dataset_files import read_stored_shards
from cc_pipeline.extensions.host_facts.registered_datasets import known_datasets
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace


def annotation_verdict(workspace: Workspace, name: str) -> CheckResult:
    """Checks whether an added dataset can still be read, from stored data, without a request."""
    check = "can_be_read"
    try:
        dataset = known_datasets(workspace.settings).get(name)
    except CcPipelineError as error:
        return CheckResult(check, "error", f"{error}")
    if dataset is None:
        return CheckResult(
            check, "warn", f"{name} was removed; its asset disappears when the code location is reloaded"
        )
    stored_shards = read_stored_shards(workspace, dataset.dataset).values()
    if not stored_shards:
        return CheckResult(check, "ok", f"{name} was not used yet")
    failed = [path for shards in stored_shards for path in shards.paths if shards.footers.entries[path].failed]
    files = sum(len(shards.paths) for shards in stored_shards)
    metrics = {"files": files, "unread": len(failed)}
    if failed:
        message = f"{len(failed):,} of {files:,} files of {name} could not be read: {abbreviate_keys(set(failed))}"
        return CheckResult(check, "warn", message, metrics)
    return CheckResult(check, "ok", f"{format_count(files, 'file')} of {name} can be read", metrics)
