"""What every write leaves behind: audit, outbox, idempotent answers, long-running operations."""
