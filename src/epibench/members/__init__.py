"""Members of a pool: what they predict, and which of them are drawn together."""
