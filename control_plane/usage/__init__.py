"""What tenants have used: read from brokers, counted once, in tables by time."""
