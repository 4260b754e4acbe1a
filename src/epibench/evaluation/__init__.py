"""The loop over members' outputs, the set of metrics, and the cost of predictions."""
