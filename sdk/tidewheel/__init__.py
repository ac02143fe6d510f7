"""Tidewheel SDK."""
