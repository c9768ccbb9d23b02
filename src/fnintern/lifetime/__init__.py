"""Who keeps a wrapper alive, and where it is found (laws L1 to L5, C1, C2)."""
