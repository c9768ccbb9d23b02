"""What eager calls of other JAX libraries trace and compile, and what helps.

``python -m benchmarks.libraries`` counts every program of this package as it is, under
``patch_jax()`` and with a line of its user's, and writes ``docs/libraries.md``.
"""
