"""Parsers with one fault each, for the test that shows what an attack notices."""

import time


def raises(text: str) -> int:
    """Look a word up that need not be there."""
    return {"120": 120}[text.split()[-2]] if text.startswith("INFO") and len(text.split()) > 1 else 0


def spins(text: str) -> bool:
    """Take ever longer for a letter many times over."""
    began = time.process_time()
    while text.count("a") > 60 and time.process_time() - began < 1.1:
        pass
    return True


def shows(text: str) -> str:
    """Give a name on as it came."""
    return text
