"""`python -m lab.daghaghi`: the same as `python -m lab.daghaghi.training`."""

from lab.daghaghi.training import main

if __name__ == "__main__":
    main()
