"""Closure conversion: programs of higher-order calls, and the faces of it. Imports jax."""
