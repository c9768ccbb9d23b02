"""Interning the wrappers of installed libraries, and undoing it. One module per library."""

from fnintern.patches.flax import patch_flax as patch_flax
from fnintern.patches.jax import patch_jax as patch_jax
from fnintern.patches.patching import Patch as Patch
from fnintern.patches.patching import patch as patch
