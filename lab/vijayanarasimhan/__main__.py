"""`python -m lab.vijayanarasimhan`: all measurements of the note, with their defaults."""

from lab.vijayanarasimhan import inference, training

_OUT = "benchmark-results/vijayanarasimhan"

if __name__ == "__main__":
    inference.main([])
    files = [f"{_OUT}/inference_linux_callees{suffix}" for suffix in (".json", ".png")]
    inference.main(["--task", "linux_callees", "--json", files[0], "--png", files[1]])
    seeds = ["--seeds", "0", "1", "2"]
    methods = [
        *training.COMPARED,
        "uniform",
        "recommended",
        "wta_16_logistic",
        "wta_16_sigmoid",
    ]
    training.main(["--methods", *methods, *seeds, "--json", f"{_OUT}/equal_time.json"])
    training.main(["--steps", "400", "--json", f"{_OUT}/equal_steps.json"])
