"""Topics, as they are declared."""
