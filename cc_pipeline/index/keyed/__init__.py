"""Parquet datasets published by host or URL key: footers kept, row groups pruned, pages read, answers kept."""
