"""Archive files, pure over bytes: WARC, ARC and gzip become records (see docs/formats.md)."""
