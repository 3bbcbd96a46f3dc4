"""From a stored HTTP response to meaning. Pure: bytes in, values out; imports no other room."""
