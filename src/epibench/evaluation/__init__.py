"""The loop over members' outputs, the set of metrics, and what predictions cost."""
