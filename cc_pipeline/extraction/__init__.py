"""The stages put together: harvest, locate, plan, fetch, parse. Plain functions from inputs to a commit."""
