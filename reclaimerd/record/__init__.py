"""Memory: the audit log, the store and the service's log."""
