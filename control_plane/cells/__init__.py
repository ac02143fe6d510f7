"""Cells, what is known of their brokers, and which tenant lives in which cell."""
