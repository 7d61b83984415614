"""From a captured step to a running one: recorded, planned, compiled."""
