"""The batches of files for the processes that parse."""

from lab.corpora.parser_workers import batches


def test_a_batch_ends_by_the_number_or_by_the_bytes_of_its_files():
    sizes = [1, 1, 1, 9, 1, 5, 1]
    files = [(str(number), bytes(size)) for number, size in enumerate(sizes)]
    found = list(batches(files, most_files=3, most_bytes=6))
    found_sizes = [[len(text) for _, text in batch] for batch in found]
    assert found_sizes == [[1, 1, 1], [9], [1, 5], [1]]
    assert sum(found, []) == files
    assert list(batches([], 3, 6)) == []
