"""Record containers, pure over bytes: WARC, ARC, Hadoop SequenceFile, WAT, WET (see docs/formats.md)."""
