"""What a researcher declares: studies, spaces, objectives and budgets, in Python or as a file; checked before anything
is spent."""
