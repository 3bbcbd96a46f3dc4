"""Finds captures: footers, the row-group catalog, and the locators. Its callers pass the transport to the source and
the folders for footers and indexes."""
