"""Files that hold pages and no records, read whole: SequenceFiles and documents of 2012, WAT and WET. Not WARC or
ARC files: a person's own are indexed (``harvesting``)."""
