"""Make for code agents, on your own hardware."""

__version__ = "0.1.0"
