"""A page's own metadata: dates, authors, structured data, headings, robots, relations. Each with its source."""
