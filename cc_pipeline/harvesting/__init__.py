"""Prepares a crawl for look-ups: list, footers, catalog, and indexes that are built here."""
