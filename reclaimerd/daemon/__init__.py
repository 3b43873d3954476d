"""Joins eyes, mind, hands and memory into one pass, and serves it."""
