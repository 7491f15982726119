"""Splits C files into tokens, without a C compiler.

Run as a program, this module is a worker of `ParserWorkers`. It needs only the standard
library, so a worker starts in milliseconds.
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
    r"|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||##"  # longer operators
    r"|\"\"|[^\w\s]",
    re.ASCII,
)


def tokens(text: str) -> list[str]:
    """Returns the tokens of a C file, without comments.

    String and character literals are replaced by `""`.

    Args:
        text: Content of the file.
    """
    text = _COMMENT_OR_STRING.sub(lambda found: " " if found[0][0] == "/" else ' "" ', text)
    return _TOKEN.findall(text)


def parse_files(files: list[tuple[str, bytes]], end: str = "<end>") -> dict[str, object]:
    """Returns the tokens of files, with `end` after each file.

    Args:
        files: Pairs `(path, content)`.
        end: The token at the end of each file.

    Returns:
        Dict of `words`, the distinct tokens; `ids`, an array of all tokens as positions in
        `words`; and `lengths`, an array of the number of tokens of each file.
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
    """Parses batches from the standard input until its end."""
    while True:
        try:
            files = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(parse_files(files), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
