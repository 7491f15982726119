"""Negatives that are drawn by a kernel or the softmax of the model, and their loss.

Papers: Blanc and Rendle 2018.
Notes: lab/blanc_rendle, lab/kernel_trees. Tests: tests/papers/kernel_tree.
"""
