"""What is raised for a change of the metadata that cannot be made."""

from __future__ import annotations


class InvalidChange(Exception):
    """The change does not fit the image that it is applied to."""
