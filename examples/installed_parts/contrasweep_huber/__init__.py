"""A package of parts for contrasweep; pyproject.toml names them."""
