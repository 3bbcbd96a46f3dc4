"""The stages: plain functions from inputs to a commit."""
