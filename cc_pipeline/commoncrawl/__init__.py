"""The names, layouts and keys that Common Crawl publishes. Pure values; imports no other room."""
