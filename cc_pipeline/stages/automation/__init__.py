"""What a home does by itself: what is due, at which pace, and what is told."""
