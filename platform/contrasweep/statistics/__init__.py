"""Does A beat B, by how much, how sure, and what would it take to know: pure functions over arrays and frames."""
