"""Metrics of a page's main text: fingerprints that identify the same article, and the filters of dataset builders."""
