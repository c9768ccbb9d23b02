"""When two arguments are the same (laws I2, I3, I5)."""
