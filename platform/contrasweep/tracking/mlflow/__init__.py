"""MLflow as a tracker: the only package that imports mlflow, and only once a store is used."""
