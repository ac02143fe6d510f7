"""What tenants have used: tables, which nothing fills or shows yet."""
