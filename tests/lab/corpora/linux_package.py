"""A tiny package in the layout of Debian's linux-source."""

from tests.lab.corpora.packages import tar_xz, write_debian_package


def write_package(path, sources, member="./usr/src/linux-source-6.1.tar.xz"):
    """Writes the source tree `{path: text}` as an `ar` of a tar of a tar."""
    files = {f"linux-source-6.1/{name}": text.encode() for name, text in sources.items()}
    tree = tar_xz(files, links={"linux-source-6.1/link.c": "kernel/a0.c"})
    return write_debian_package(path, {member: tree})


def sources(num_files=40):
    """Returns files that call `lock` and `only_{i}`. File 1 has a function without calls."""
    text = (
        "int open_{i}(struct box *b)\n{{\n\tlock(b);\n\tonly_{i}(b->size, MAX_LEN);\n}}\n\n"
        "static void shut_{i}(void)\n{{\n\tlock(NULL);\n}}\n"
    )
    files = {f"kernel/a{i}.c": text.format(i=i) for i in range(num_files)}
    files["kernel/a1.c"] += "\nint quiet(void)\n{\n\treturn 0;\n}\n"
    return files | {"kernel/a.h": "int f(void)\n{\n\tg();\n}\n"}
