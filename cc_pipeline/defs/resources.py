"""The one resource: it only builds the plain workspace that stages work with."""

import dagster as dg
from pydantic import Field

from cc_pipeline.settings import load_settings
from cc_pipeline.stages.workspace import Workspace


class Pipeline(dg.ConfigurableResource[Workspace]):
    """Where the pages come from and where they go. Empty fields are read from ``CC_PIPELINE_*`` variables."""

    source: str = Field(default="", description="Root of a Common Crawl bucket: folder, https:// or s3://.")
    home: str = Field(default="", description="Folder of all local state.")

    def workspace(self) -> Workspace:
        """A workspace of these settings."""
        return Workspace(load_settings(source=self.source or None, home=self.home or None))


@dg.definitions
def resources() -> dg.Definitions:
    """Resources and the executor: one process a run, parallel work inside the stages."""
    return dg.Definitions(resources={"pipeline": Pipeline()}, executor=dg.in_process_executor)
