"""What was declared becomes so in cells, and what cells have that nobody declared becomes known."""
