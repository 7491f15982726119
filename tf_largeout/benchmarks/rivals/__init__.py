"""Models of other libraries, which the benchmarks compare with; a new one is a line here."""

from tf_largeout.benchmarks.rivals.fasttext_model import FasttextModel
from tf_largeout.benchmarks.rivals.napkinxc_model import NapkinxcModel
from tf_largeout.benchmarks.rivals.omikuji_model import OmikujiModel
from tf_largeout.benchmarks.rivals.rival import Rival

# The trees as their authors set them; what is `tuned` was found on a validation split.
RIVALS = {
    "omikuji": Rival("Omikuji, 3 trees", OmikujiModel),
    "omikuji_1_tree": Rival("Omikuji, 1 tree", OmikujiModel, settings={"n_trees": 1}),
    "napkinxc": Rival("napkinXC, PLT", NapkinxcModel),
    "fasttext_hs": Rival(
        "fastText, hierarchical softmax",
        FasttextModel,
        settings={"loss": "hs", "lr": 0.5},
        tuned={"place_names": {"epoch": 10}},
    ),
    "fasttext_ns": Rival(
        "fastText, negative sampling", FasttextModel, settings={"loss": "ns", "lr": 0.5}
    ),
}
