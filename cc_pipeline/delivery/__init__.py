"""Wing: what leaves a home, with proof: deliveries of records, exports, data sets, one page."""
