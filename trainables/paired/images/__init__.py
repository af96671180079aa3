"""Images as a modality of the family: pairs of them, and single ones."""
