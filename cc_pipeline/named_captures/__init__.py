"""Named captures: lists of captures by their locations in archive files."""
