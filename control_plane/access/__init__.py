"""Service accounts, their keys, and what they may do."""
