"""What a study says, for people: tables in every format and one self-contained HTML report."""
