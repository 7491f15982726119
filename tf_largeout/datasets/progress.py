"""Progress bars of tqdm."""

from tf_largeout.datasets.extras import needed_by_datasets

with needed_by_datasets():
    from tqdm import tqdm as tqdm
