"""Stored records as deliveries that prove themselves."""
