"""Finding captures: footers, the row-group catalog, and the locators. Works on bytes and tables it is given."""
