"""What a step has to move and to compute, and what holds it back. Pure: numbers in, numbers out."""
