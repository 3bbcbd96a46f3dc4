"""Texts of what is neither a page nor a feed: plain text, JSON, XML, sitemaps and PDF."""
