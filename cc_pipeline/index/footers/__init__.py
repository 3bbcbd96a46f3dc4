"""Footers of Parquet index files: fetched, kept, decoded."""
