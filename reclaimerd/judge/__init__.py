"""Mind: pure functions from a snapshot and a policy to verdicts, steps and permits."""
