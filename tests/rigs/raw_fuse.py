"""The raw FUSE rig, where tests look for it; the server itself also serves the demo."""

from reclaimerd.simulation.raw_fuse import RawFuse, Withhold, why_unavailable

__all__ = ["RawFuse", "Withhold", "why_unavailable"]
