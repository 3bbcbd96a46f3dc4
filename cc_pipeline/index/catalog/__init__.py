"""The row-group catalog: built from footers, a DuckDB file a crawl, merged ones beside them."""
