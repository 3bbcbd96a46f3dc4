"""Bytes you can trust: verified ranges, coalescing, retries by kind of fault, the shared request budget."""
