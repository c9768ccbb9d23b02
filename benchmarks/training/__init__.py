"""Training scripts as users write them, plain and under ``python -m fnintern run``."""
