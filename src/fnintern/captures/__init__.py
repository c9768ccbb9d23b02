"""What a function can see, split into a key and arrays (laws S1, S2, S5)."""
