"""A tiny package in the layout of Debian's linux-source."""

import io
import tarfile


def write_package(path, sources, member="./usr/src/linux-source-6.1.tar.xz"):
    """Writes `{path below the top: text}` as an `ar` of a tar of a tar."""
    files = {f"linux-source-6.1/{name}": text.encode() for name, text in sources.items()}
    tree = _tar_xz(files, links={"linux-source-6.1/link.c": "kernel/a0.c"})
    data = _tar_xz({"./usr/share/doc/copyright": b"GPL-2", member: tree})
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data}
    with open(path, "wb") as package:
        package.write(b"!<arch>\n")
        for name, content in members.items():
            header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
            package.write(header.encode() + content + b"\n" * (len(content) % 2))
    return path


def _tar_xz(files, links=None):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def sources(num_files=40):
    """File i calls what all call, and `only_i`; file 1 has a function that calls nothing."""
    text = (
        "int open_{i}(struct box *b)\n{{\n\tlock(b);\n\tonly_{i}(b->size, MAX_LEN);\n}}\n\n"
        "static void shut_{i}(void)\n{{\n\tlock(NULL);\n}}\n"
    )
    files = {f"kernel/a{i}.c": text.format(i=i) for i in range(num_files)}
    files["kernel/a1.c"] += "\nint quiet(void)\n{\n\treturn 0;\n}\n"
    return files | {"kernel/a.h": "int f(void)\n{\n\tg();\n}\n"}
