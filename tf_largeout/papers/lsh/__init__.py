"""Hash tables for classes: LSH and WTA (Daghaghi et al. 2021, Vijayanarasimhan et al. 2015)."""
