"""Cuts C files into tokens, without a C compiler.

Run as a program this module is a worker of `ParserWorkers`. It needs the standard library only,
so that a worker starts in milliseconds.
"""

import array
import pickle
import re
import sys

_COMMENT_OR_STRING = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_TOKEN = re.compile(
    r"[A-Za-z_]\w*"  # identifiers and keywords
    r"|\.?\d(?:[eEpP][+-]|[\w.])*"  # numbers
    r"|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||##"  # signs of several
    r"|\"\"|[^\w\s]",
    re.ASCII,
)


def tokens(text: str) -> list[str]:
    """The tokens of a C file: comments left out, strings and characters as `""`.

    Args:
        text: what the file has.
    """
    text = _COMMENT_OR_STRING.sub(lambda found: " " if found[0][0] == "/" else ' "" ', text)
    return _TOKEN.findall(text)


def parse_files(files: list[tuple[str, bytes]], end: str = "<end>") -> dict[str, object]:
    """All tokens of some files, with `end` after each file.

    Args:
        files: `(path, content)`.
        end: the token at the end of a file.

    Returns:
        Dict of `words`, the different tokens; `ids`, an array of their places there; and
        `lengths`, an array of the numbers of tokens of the files.
    """
    numbers = _Numbers()
    ids, lengths = array.array("i"), array.array("i")
    for _, content in files:
        found = tokens(content.decode("latin-1"))
        found.append(end)
        ids.extend(map(numbers.__getitem__, found))
        lengths.append(len(found))
    return {"words": list(numbers), "ids": ids, "lengths": lengths}


class _Numbers(dict[str, int]):
    """Numbers words in order of appearance."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def main() -> None:
    """Answers batches until there are no more."""
    while True:
        try:
            files = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(parse_files(files), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
