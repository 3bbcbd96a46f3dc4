"""Pages and records handed on: the nearest capture, one page, exports."""
