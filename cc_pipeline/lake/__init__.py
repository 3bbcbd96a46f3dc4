"""The Delta tables: one Arrow schema each, slices replaced in one commit, and the published DuckDB snapshots."""
