"""``python -m bench.placement``: the table, in some ten seconds."""

from bench.placement.report import report

if __name__ == "__main__":
    print(report())
