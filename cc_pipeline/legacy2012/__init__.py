"""Wing: the formats of 2012 and after beside records: SequenceFiles, metadata documents, WAT and WET."""
