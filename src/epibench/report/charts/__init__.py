"""Charts as inline SVG that follows the colours of the page."""
