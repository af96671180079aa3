"""Where records, checkpoints and tracking go unless the caller says otherwise."""

STORAGE = "./contrasweep-runs"
TRACKING = "sqlite:///mlflow.db"
