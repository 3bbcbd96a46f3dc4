"""Digests of inputs and rows: made, committed with the rows, read by name, folded into sorted files."""
