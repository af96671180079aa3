"""The referee: a stream of candidates against one incumbent, each kept, discarded or undecided."""
