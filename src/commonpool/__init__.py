"""commonpool: a private GPU cluster shared by departments, as an internal utility for LLM inference."""

__version__ = "0.1.0"
