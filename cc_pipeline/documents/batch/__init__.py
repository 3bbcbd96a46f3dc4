"""Many pages parsed in supervised processes: a page that hangs or ends its process becomes a row that says so."""
