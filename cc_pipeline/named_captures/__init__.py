"""Captures that a person names one by one: by their places in archive files, or by URL and time."""
