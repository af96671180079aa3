"""The release, as the installed package's metadata say."""

from importlib.metadata import version

__version__ = version("contrasweep")
