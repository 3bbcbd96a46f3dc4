"""Frozen published rows: what a change that must change no row is held against."""
