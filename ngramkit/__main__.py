"""`python -m ngramkit`: the command line, which nothing else here imports."""

from ngramkit_cli.main import run

if __name__ == "__main__":
    run()
