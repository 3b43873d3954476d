"""The operating system's tools that every room may use: children, files, /proc text."""
