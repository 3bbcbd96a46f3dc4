"""Indexes that are built here, for archive files that nobody publishes an index of: rows, and Parquet files of them."""
