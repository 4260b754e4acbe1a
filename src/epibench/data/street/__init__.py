"""Street scenes made by a program: exact depth and labels, a clean world, a wild one, and all shifts between."""

from epibench.data.street.dataset import StreetDataset
from epibench.data.street.domains import FACTORS, Domain, make_domain
from epibench.data.street.frames import Frame, render_frame

__all__ = ["FACTORS", "Domain", "Frame", "StreetDataset", "make_domain", "render_frame"]
