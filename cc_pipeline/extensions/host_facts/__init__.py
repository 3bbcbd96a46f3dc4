"""Wing: data that others publish of hosts, joined to hosts and captures: datasets, ranks, filters on facts."""
