"""Data sets, one file each: its reader, its place in a recipe, and what `data check` says of it."""
