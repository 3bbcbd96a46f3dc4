"""Wing: files that hold pages and no records, beside archives: SequenceFiles and documents of 2012, WAT and WET."""
