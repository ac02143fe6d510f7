"""What makes a row a tenant's, and a resource something declared. No Django app of its own."""
