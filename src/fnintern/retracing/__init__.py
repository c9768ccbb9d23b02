"""What re-traced, where, why, and at what cost. Depends on no module that interns."""
