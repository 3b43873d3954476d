"""Frozen words that every room shares; no behaviour that reads or changes the world."""
