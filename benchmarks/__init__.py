"""Measurements, one module a question. Every number is printed beside its rival's and its goal."""
