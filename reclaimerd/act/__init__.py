"""Hands: perform one permitted step and say what came of it."""
