"""What a page says about itself: dates, authors, structured data, headings, robots, relations. Each with its source."""
