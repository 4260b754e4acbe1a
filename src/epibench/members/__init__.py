"""Members of a pool: their predictions, and the draws from them."""
