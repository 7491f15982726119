"""A tiny dataset in the repository's text format."""

TRAIN = "4 10 6\n3,1 0:0.5 9:1\n3 2:1e-1\n 4:2\n5,3,1 1:1 2:2 3:3\n"
TEST = "2 10 6\n1 0:1\n0,2 8:0.25\n"


def write_xmc(folder, train=TRAIN, test=TEST):
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text(train)
    (folder / "test.txt").write_text(test)
