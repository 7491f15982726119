from lab.distribution import asynchronous


def test_streams_are_endless_and_differ_in_order_by_seed():
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
