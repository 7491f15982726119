"""Tiny Debian packages."""

import io
import tarfile


def write_debian_package(path, files):
    """Writes a package that installs the files `{path: content}`: an `ar` of tar archives."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": b"odd",
        "data.tar.xz": tar_xz({"./usr/share/doc/copyright": b"GPL-2"} | files),
    }
    with open(path, "wb") as package:
        package.write(b"!<arch>\n")
        for name, content in members.items():
            header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
            package.write(header.encode() + content + b"\n" * (len(content) % 2))
    return path


def tar_xz(files, links=None):
    """Returns an archive of files `{path: content}` and symbolic links `{path: target}`."""
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
