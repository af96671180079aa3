"""How an arm is tuned: what is tried next (`searchers`), and what is stopped early (`pruners`)."""
