"""What tenants have used, pulled from cells."""
