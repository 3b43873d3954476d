"""Eyes: read the world and say what was seen; never judge, never act."""
