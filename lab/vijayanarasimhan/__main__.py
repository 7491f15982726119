"""`python -m lab.vijayanarasimhan`: all measurements of the note, with their defaults."""

from lab.vijayanarasimhan import inference, training

_OUT = "benchmark-results/vijayanarasimhan"

if __name__ == "__main__":
    inference.main([])
    methods = [*training.COMPARED, "uniform", "recommended"]
    training.main(["--methods", *methods, "--json", f"{_OUT}/equal_time.json"])
    training.main(["--steps", "400", "--json", f"{_OUT}/equal_steps.json"])
