"""Sentence pairs as a modality of the family: premise and hypothesis take the places of pre and post."""
