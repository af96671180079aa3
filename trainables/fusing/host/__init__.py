"""The process that hosts a cohort, and the messages to its members' processes."""
