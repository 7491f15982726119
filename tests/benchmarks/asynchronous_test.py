from tf_largeout.benchmarks import asynchronous


def test_a_row_says_who_trained_how_fast_and_how_well():
    row = {"trainers": 2, "examples_s": 12345.6, "precision": [0.25, 0.5]}
    assert "2 trainers      12,346 examples/s, P@1 0.250 0.500" in asynchronous.line(row)
    assert asynchronous.line({**row, "trainers": 0}).startswith("plain fit ")


def test_a_stream_has_no_end_and_an_order_of_its_own_for_each_seed():
    options = asynchronous._parser().parse_args(["--num-classes", "50", "--batch-size", "40"])
    rows = asynchronous._rows(options)
    orders = []
    for seed in (1, 2):
        stream = asynchronous._stream(rows, options, seed).take(3)
        batches = [ids.numpy().tolist() for _, ids in stream]
        assert [len(one) for one in batches] == [40, 40, 40]
        orders.append(sum(batches, []))
        assert sorted(orders[-1][:50]) == list(range(50))
    assert orders[0] != orders[1]
