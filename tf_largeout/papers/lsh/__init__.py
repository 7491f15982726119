"""Negatives and search by hash tables: LSH and WTA; and by an exact search.

Papers: Daghaghi et al. 2021; Vijayanarasimhan et al. 2015.
Notes: lab/daghaghi, lab/vijayanarasimhan. Tests: tests/papers/lsh.
"""
