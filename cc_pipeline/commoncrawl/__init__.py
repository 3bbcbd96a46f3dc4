"""What Common Crawl publishes: names, layouts, keys. Pure values; imports no other room."""
