"""A method of one's own, for contrasweep."""
