"""Files read from beginning to end: 2012 SequenceFiles, WAT, WET."""
