"""Figures of a page's main text: fingerprints that find the same article again, and what dataset builders filter by."""
