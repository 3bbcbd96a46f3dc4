"""cc_pipeline: every capture of a domain out of Common Crawl, 2008 to today, as a Dagster pipeline.

``docs/architecture.md`` describes the rooms and what each may import.
"""

__version__ = "0.1.0"

#: The name under which requests are sent and files are written.
SOFTWARE = f"cc_pipeline/{__version__.rpartition('.')[0]}"
