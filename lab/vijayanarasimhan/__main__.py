"""`python -m lab.vijayanarasimhan`: all measurements of the note, with their defaults."""

from lab.vijayanarasimhan import inference, training

if __name__ == "__main__":
    inference.main([])
    training.main(["--json", "benchmark-results/vijayanarasimhan/equal_time.json"])
    training.main(
        ["--steps", "400", "--json", "benchmark-results/vijayanarasimhan/equal_steps.json"]
    )
