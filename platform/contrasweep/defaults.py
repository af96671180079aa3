"""The default places of records, checkpoints and tracking."""

STORAGE = "./contrasweep-runs"
TRACKING = "sqlite:///mlflow.db"
OF_STUDY = "study"
"""In place of a tracking address: the study's own `tracking`, and where it has none, TRACKING."""
