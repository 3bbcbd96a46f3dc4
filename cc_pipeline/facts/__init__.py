"""Wing: data that others publish by host or URL key, joined to hosts and captures."""
