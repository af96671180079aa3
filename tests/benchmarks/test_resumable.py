"""A simulation that was stopped goes on with the seeds that it lacks, and runs none twice."""

from benchmarks.resumable import read_rows, simulate

WANTED = {"rare": 30, "common": 90}


def test_a_simulation_goes_on_where_it_ended(tmp_path):
    rows = tmp_path / "deep/rows.jsonl"
    ran = []

    def study(kind, seed):
        ran.append((kind, seed))
        return {"twice": 2 * seed}

    simulate(rows, {"rare": 10, "common": 90}, study, 60)
    simulate(rows, WANTED, study, 60)
    simulate(rows, WANTED, study, 60)
    assert sorted(ran) == sorted(
        (kind, seed) for kind, count in WANTED.items() for seed in range(count)
    )
    known = read_rows(rows, WANTED)
    assert {kind: [one["twice"] for one in came] for kind, came in known.items()} == {
        kind: [2 * seed for seed in range(count)] for kind, count in WANTED.items()
    }
