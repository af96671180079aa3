"""Files of other programs as studies: `contrasweep init --from FILE`. Files are read, never run."""
