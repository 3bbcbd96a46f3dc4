"""A crawl's own way: its list, its footers, its catalog, indexes that are built here."""
