"""cc_pipeline: every capture of a domain out of Common Crawl, 2008 to today, as a Dagster pipeline.

The rooms and what may import what are described in ``docs/architecture.md``.
"""

__version__ = "0.1.0"
