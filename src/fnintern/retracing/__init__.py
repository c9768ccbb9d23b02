"""What re-traced, where, why, and at what cost. Stands alone: it knows nothing of interning."""
