"""epibench: how far can a model's uncertainty be trusted, and what does each further sample buy?"""

__version__ = "0.3.0"
