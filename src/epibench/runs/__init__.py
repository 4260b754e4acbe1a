"""Carry recipes out: a run is a recipe in a folder; it can be stopped at any moment and goes on where it stopped."""
