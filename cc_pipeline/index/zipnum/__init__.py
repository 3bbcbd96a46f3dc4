"""The ZipNum index (``cdx-*.gz`` behind ``cluster.idx``)."""
