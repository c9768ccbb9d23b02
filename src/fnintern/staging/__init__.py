"""Closure conversion: programs of higher-order calls, and the faces of it. Imports jax."""

# Before any module here has begun: a patch that waits for jax is applied in here, and needs them.
import jax  # noqa: F401
