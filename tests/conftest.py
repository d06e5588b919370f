"""What holds for all tests."""

from hypothesis import settings

# How long an example takes says more of the machine than of the code.
settings.register_profile("commonpool", deadline=None)
settings.load_profile("commonpool")
