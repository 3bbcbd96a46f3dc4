"""Files with pages and no records, read in full: SequenceFiles and documents of 2012, WAT and WET. Not WARC or ARC
files: a user's own are indexed (``harvesting``)."""
