"""Finds captures: footers, the row-group catalog, and the locators. Reads the source through the transport it is given,
and keeps footers and indexes in the folders it is given."""
