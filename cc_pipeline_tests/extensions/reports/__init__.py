"""Tests of the extension ``reports``."""
