"""The command of the note on Blanc & Rendle 2018."""

from lab.blanc_rendle import __main__, bias


def test_all_series_use_the_rate_with_the_lowest_validation_perplexity(monkeypatch):
    calls, last = [], {5: 80.0, 10: 70.0, 20: 75.0}

    def run(arguments):
        calls.append(bias._parser().parse_args(arguments))
        rates = calls[-1].learning_rates
        runs = [{"learning_rate": at, "validation_perplexity": [60, last[at]]} for at in rates]
        return {"runs": runs}

    for name in ("draw_cost", "draw_worth", "absolute", "language_model"):
        program = getattr(__main__, name)
        monkeypatch.setattr(program, "main", program._parser().parse_args)
    monkeypatch.setattr(bias, "main", run)
    __main__.main()
    rates = [call.learning_rates for call in calls]
    assert rates == [[5, 10, 20], *([10] for _ in __main__.SERIES), [5]]
    assert len({call.json for call in calls}) == len(calls)
