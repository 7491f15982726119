"""The factored output and the spherical losses: exact steps without sampling.

Papers: Vincent, de Brebisson and Bouthillier 2015; de Brebisson and Vincent 2016.
Notes: lab/factored, lab/vincent. Tests: tests/papers/factored.
"""
