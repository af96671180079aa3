"""`python -m contrasweep`."""

from contrasweep.cli import main

main()
