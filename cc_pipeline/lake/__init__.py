"""The tables: one Arrow schema each, atomic commits, and the published DuckDB snapshots."""
