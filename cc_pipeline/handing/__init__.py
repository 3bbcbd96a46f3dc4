"""Wing: what leaves a home, with proof: deliveries, exports, data sets, one page."""
