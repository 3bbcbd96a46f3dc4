"""What a home does by itself: the watch list, what is due, at which pace."""
