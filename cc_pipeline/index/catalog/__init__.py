"""The row-group catalog: built from footers, queried, exported."""
