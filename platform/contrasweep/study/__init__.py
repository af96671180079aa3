"""What a researcher declares: studies, search spaces, objectives and budgets, checked before anything is spent."""
