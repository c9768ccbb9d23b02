"""A stable function identity for JAX. Importing it imports neither jax nor flax."""
