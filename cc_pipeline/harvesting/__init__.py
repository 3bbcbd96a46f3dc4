"""Prepares a crawl for lookups: list, footers, catalog, and indexes that are built here."""
