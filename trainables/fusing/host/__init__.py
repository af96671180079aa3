"""The process that hosts a cohort, and what its members' processes hear of it."""
