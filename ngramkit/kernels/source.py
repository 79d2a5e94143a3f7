"""Where a node of a draft came from, by number: `drafters.base.Source` gives them their names."""

DATASTORE, FROZEN, DYNAMIC, CONTEXT, MODEL, HISTORY, REFERENCE = range(7)
