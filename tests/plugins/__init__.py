"""Plugins of the test run; tests/conftest.py loads them."""
