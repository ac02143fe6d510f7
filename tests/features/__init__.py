"""What is plugged into the broker, room by room."""
