"""Footers of Parquet index files: fetched, stored, decoded."""
