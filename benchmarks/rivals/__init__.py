"""Models of other libraries for comparison; a new one is a line here."""

from benchmarks.rivals.models import FasttextModel, NapkinxcModel, OmikujiModel, Rival

# Flat trees, as in Bonsai: clusters of any size, and many children per node.
FLAT = {"cluster_balanced": False, "collapse_every_n_layers": 5}

# Trees with the settings of their authors, and flat trees, the best on a validation split. The
# settings in `tuned` were found on the same split.
RIVALS = {
    "omikuji": Rival("Omikuji, 3 trees", OmikujiModel),
    "omikuji_1_tree": Rival("Omikuji, 1 tree", OmikujiModel, settings={"n_trees": 1}),
    "omikuji_flat": Rival("Omikuji, 3 flat trees", OmikujiModel, settings=FLAT),
    "omikuji_1_flat_tree": Rival(
        "Omikuji, 1 flat tree", OmikujiModel, settings={"n_trees": 1, **FLAT}
    ),
    "napkinxc": Rival("napkinXC, PLT", NapkinxcModel),
    "fasttext_hs": Rival(
        "fastText, hierarchical softmax",
        FasttextModel,
        settings={"loss": "hs", "lr": 0.5},
        tuned={"place_names": {"epoch": 10}, "linux_callees": {"lr": 0.2, "epoch": 15}},
    ),
    "fasttext_ns": Rival(
        "fastText, negative sampling", FasttextModel, settings={"loss": "ns", "lr": 0.5}
    ),
}
