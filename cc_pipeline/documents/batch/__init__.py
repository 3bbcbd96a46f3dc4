"""Parses many pages in supervised processes. A page that hangs or ends its process becomes a row with that error."""
