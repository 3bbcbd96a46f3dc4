"""Prefixed B-trees: the 2012 URL index, and those built here."""
