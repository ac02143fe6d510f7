"""Tests of data_plane/groups and of its request handlers."""
