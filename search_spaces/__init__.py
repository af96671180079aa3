"""What to try: spaces per method family, and one file of studies per paper."""
