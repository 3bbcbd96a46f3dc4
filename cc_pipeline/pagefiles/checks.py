"""The checks of files read whole and of exports; as ``checks/asset_checks.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cc_pipeline.checks.check import Check, check, checks_in

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.workspace.workspace import Workspace


@check("source_faults", step="source_checks", unit="file")
def files_are_readable(workspace: Workspace, scope: Scope) -> CheckResult:
    """Every stretch of every file could be read, and gave pages."""
    from cc_pipeline.pagefiles.verdicts import faults_verdict

    return faults_verdict(workspace, scope)


def _of_exports(asset: str) -> Check:
    @check(asset, step="export_checks", unit="partition")
    def files_are_there(workspace: Workspace, scope: Scope) -> CheckResult:
        """The files of every export are there, whole, with the records promised, and of the pages of now."""
        from cc_pipeline.pagefiles.verdicts import EXPORTS, exports_verdict

        return exports_verdict(workspace, EXPORTS[asset], scope)

    return files_are_there


_EXPORT_CHECKS: Final = tuple(map(_of_exports, ("text_sequencefile", "metadata_sequencefile")))
#: In the order of the module.
CHECKS: Final = checks_in(globals())
