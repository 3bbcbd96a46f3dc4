"""Prepares a crawl for look-ups: list, footers, catalog, indexes nobody publishes."""
