"""Data that is published by host or URL key, joined to hosts and captures."""
