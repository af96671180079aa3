"""`python -m contrasweep`."""

from contrasweep.cli import program

program()
