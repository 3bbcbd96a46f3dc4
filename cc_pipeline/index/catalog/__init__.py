"""The row-group catalog: built from footers, asked from one DuckDB file."""
