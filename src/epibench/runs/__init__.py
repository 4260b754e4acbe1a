"""Execute recipes: a run is a recipe in a folder. It can be stopped and resumed at any moment."""
