"""Files read from begin to end: 2012 SequenceFiles, WAT, WET."""
