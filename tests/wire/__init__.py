"""Tests of data_plane/wire."""
