"""What fnintern costs, against what it replaces: ``python -m benchmarks``."""
