"""What Common Crawl publishes: names, layouts, keys. Pure values; imports nothing of ours but ``errors`` and
``capture_columns``."""
