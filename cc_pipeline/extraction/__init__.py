"""Decides what a crawl x target x subset still needs, and does it: standing, plan, locate, fetch, parse, run."""
