"""Plans, and what one tenant may use."""
