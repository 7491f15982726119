"""The factored output and its spherical losses (Vincent et al. 2015)."""
