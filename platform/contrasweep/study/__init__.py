"""What a researcher declares: studies, search spaces and budgets, checked before anything is spent."""
