"""From members' outputs to the predictive distribution of every draw: one module per likelihood."""
