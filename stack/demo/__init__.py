"""`demo`: the main job on real input, checked message by message."""
