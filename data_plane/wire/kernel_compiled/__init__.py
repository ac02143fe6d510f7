"""The kernel's modules in C, where `hatch_build.py` could compile them; otherwise empty.

Nobody imports from here but `kernel.py`, which knows whether what lies here is current.
"""
