"""Rendered street scenes: exact depth and labels, a clean domain, a wild domain, and all shifts between."""

from epibench.street.dataset import StreetDataset
from epibench.street.domains import FACTORS, Domain, make_domain
from epibench.street.frames import Frame, render_frame

__all__ = ["FACTORS", "Domain", "Frame", "StreetDataset", "make_domain", "render_frame"]
