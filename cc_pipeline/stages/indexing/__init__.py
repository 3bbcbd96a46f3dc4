"""A crawl's own way: its list, its footers, its catalog, a B-tree of its own."""
