"""Hostile clients against a live broker."""
