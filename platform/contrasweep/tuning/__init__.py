"""How an arm is tuned: what is asked next (`searchers`), and what is stopped early (`pruners`)."""
