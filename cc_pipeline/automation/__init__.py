"""Automation of a home: the watch list, the crawls and partitions that are due, and the pace."""
