"""What a researcher declares: studies, spaces, objectives and budgets, checked before anything is spent."""
