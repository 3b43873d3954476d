"""reclaimctl: what an operator types and reads."""
