"""A reference posterior predictive for the toy problems: `predictions` reads it, `make` samples it."""
