"""What a study leaves: stores (folder, S3), and the records, checkpoints and plans that lie in them."""
