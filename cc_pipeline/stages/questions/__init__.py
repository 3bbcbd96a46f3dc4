"""What a published file answers without SQL of one's own: notes on columns, macros, a report of each target."""
