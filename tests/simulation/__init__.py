"""A whole cell on one thread, with virtual time and chance from a seed. See docs/simulation.md."""
