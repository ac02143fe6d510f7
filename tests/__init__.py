"""Tests of every room, and those that cross rooms."""
