"""Evaluation: against reference values of SINCERE's code, scikit-learn, and the definitions in plain loops."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import seeded

from contrasweep.trainables.evaluation import evaluate, neighbours, probe, scores, target_noise
from contrasweep.trainables.evaluation.extra import EXTRA, few_labels, nmi, sgd_probe, weighted_knn

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "goldens/losses.json").read_text())["evaluation"]


@pytest.fixture(scope="module")
def parts(golden):
    names = (f"{part}_{kind}" for part in ("train", "test") for kind in ("embeddings", "labels"))
    return [torch.tensor(golden[name]) for name in names]


def test_neighbours_target_and_noise_are_the_reference(golden, parts):
    near = neighbours.search(*parts, ks=(1, 3, 5))
    for k, votes in near.votes.items():
        expected = golden["knn"][str(k)]
        assert votes.tolist() == expected["pred"]
        hits = votes == torch.tensor(golden["test_labels"])
        assert hits.double().mean().item() == pytest.approx(expected["accuracy"])
    expected = golden["target_noise"]
    assert near.target.tolist() == pytest.approx(expected["target_sim"], abs=1e-6)
    assert near.noise.tolist() == pytest.approx(expected["noise_sim"], abs=1e-6)
    assert near.noise_label.tolist() == expected["noise_label"]
    margin = evaluate(*parts, 3).metrics["similarity_margin"]
    assert margin == pytest.approx(expected["median_margin"], abs=1e-6)


def test_histogram_is_the_reference(golden):
    series = golden["target_noise"]
    histogram_ = target_noise.histogram(
        np.array(series["target_sim"]), np.array(series["noise_sim"])
    )
    for counts, name in ((histogram_.target, "target"), (histogram_.noise, "noise")):
        assert {str(i): int(counts[i]) for i in np.flatnonzero(counts)} == golden["histogram"][
            f"{name}_counts_nonzero"
        ]
    assert [share.sum() for share in histogram_.shares()] == pytest.approx([1, 1])


def test_histogram_drops_nothing():
    histogram_ = target_noise.histogram(
        np.array([-1.0, 0.5, 1.0]), np.array([-np.inf, 2.0, -0.1]), bins=11
    )
    assert histogram_.target.sum() == 3 and histogram_.noise.sum() == 2
    assert histogram_.missing == (0, 1)
    assert histogram_.target[0] == 1 and histogram_.noise[-1] == 1


def test_histograms_by_class_are_of_its_own_items_and_of_the_most_frequent_classes():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(25), [3] * 5 + [8] * 20))
    target = rng.random(len(labels))
    noise = rng.random(len(labels))
    counted = target_noise.by_class(target, noise, labels)
    assert list(counted) == list(range(5, 25))
    for label, one in counted.items():
        assert one.target.sum() == one.noise.sum() == 8
        low = one.edges[:-1][one.target > 0].min()
        high = one.edges[1:][one.target > 0].max()
        assert low <= target[labels == label].min() and target[labels == label].max() <= high


def test_arc_length_of_known_angles():
    angles = target_noise.arc_length(np.array([1.0, 0.0, -1.0, 0.5, -np.inf]))
    assert angles.tolist() == pytest.approx([1.0, 0.5, 0.0, 2 / 3, -math.inf])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t", "from 1 $ to 2 $", r"$\frac{$"])
def test_the_figures_are_pngs_whatever_names_have(name, tmp_path):
    counts = target_noise.histogram(np.random.default_rng(0).random(50), np.zeros(50))
    text = {"title": name, "axis": "cosine"}
    for path in (
        target_noise.figure(counts, tmp_path / "similarities.png", **text),
        target_noise.class_figure({0: counts}, [name], tmp_path / "classes.png", **text),
    ):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_ties_go_to_the_lowest_label():
    index = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    near = neighbours.search(
        index,
        torch.tensor([2, 1, 3, 0]),
        torch.tensor([[1.0, 0], [0, 1]]),
        torch.tensor([2, 3]),
        ks=(1, 2),
    )
    assert near.votes[1].tolist() == [1, 0]
    assert near.votes[2].tolist() == [1, 0]


def test_an_absent_class_never_wins_the_vote():
    won = neighbours.vote(torch.tensor([[-0.5, -0.6, -0.7]]), torch.tensor([[3, 2, 2]]), classes=5)
    assert won.tolist() == [3]


def test_a_class_without_index_items_has_no_target():
    near = neighbours.search(
        torch.eye(3), torch.tensor([0, 0, 1]), torch.eye(3)[:1], torch.tensor([2]), retrieval=True
    )
    assert near.target.tolist() == [-math.inf]
    assert near.noise.tolist() == [1.0]
    assert near.retrieval["map_at_r"].tolist() == [0.0]
    alone = neighbours.search(
        torch.eye(2), torch.tensor([0, 0]), torch.eye(2), torch.tensor([0, 0])
    )
    assert alone.noise.tolist() == [-math.inf] * 2


problems = st.tuples(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.integers(0, 10_000)
)


@settings(max_examples=40)
@given(problems)
def test_one_pass_equals_the_definitions_in_loops(problem):
    m, n, classes, seed = problem
    rng = np.random.default_rng(seed)
    train = rng.normal(size=(m, 3))
    test = rng.normal(size=(n, 3))
    train_labels = rng.integers(classes, size=m)
    test_labels = rng.integers(classes, size=n)
    near = neighbours.search(
        *(torch.tensor(x) for x in (train, train_labels, test, test_labels)),
        ks=(1, 5),
        recall_at=(1, 3),
        retrieval=True,
    )
    for i in range(n):
        cosine = [test[i] @ z / np.linalg.norm(z) / np.linalg.norm(test[i]) for z in train]
        ranking = sorted(range(m), key=lambda j: -cosine[j])
        same = [train_labels[j] == test_labels[i] for j in ranking]
        assert near.votes[1][i] == train_labels[ranking[0]]
        sums = {
            c: sum(cosine[j] for j in ranking[:5] if train_labels[j] == c)
            for c in train_labels[ranking[:5]]
        }
        assert near.votes[5][i] == max(sorted(sums), key=lambda c: sums[c])
        r = sum(same)
        average = sum(sum(same[: k + 1]) / (k + 1) for k in range(r) if same[k]) / max(r, 1)
        assert near.retrieval["map_at_r"][i] == pytest.approx(average, abs=1e-9)
        assert near.retrieval["r_precision"][i] == pytest.approx(
            sum(same[:r]) / max(r, 1), abs=1e-9
        )
        assert near.retrieval["recall_at_3"][i] == float(any(same[:3]))


def test_tiles_change_nothing(monkeypatch):
    generator = seeded(0)
    z = torch.randn(50, 4, generator=generator)
    labels = torch.randint(3, (50,), generator=generator)
    parts = z[:30], labels[:30], z[30:], labels[30:]
    whole = neighbours.search(*parts, retrieval=True)
    monkeypatch.setattr(neighbours, "SCORES_AT_ONCE", 100)
    tiled = neighbours.search(*parts, retrieval=True)
    assert torch.allclose(whole.target, tiled.target, atol=1e-6)
    assert all(torch.equal(whole.votes[k], tiled.votes[k]) for k in whole.votes)
    assert all(torch.allclose(whole.retrieval[k], tiled.retrieval[k]) for k in whole.retrieval)


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 1000))
def test_scores_are_scikit_learns_over_the_classes_of_the_labels(n, classes, seed):
    from sklearn.metrics import accuracy_score, f1_score

    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    predicted = rng.integers(classes, size=n)
    scored = scores.classification(torch.tensor(predicted), torch.tensor(labels), classes)
    assert scored["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    # A class that is predicted and has no item would have an F1 of 0, and lower the mean of the others.
    occurring = sorted({*labels})
    macro = f1_score(labels, predicted, average="macro", labels=occurring)
    assert scored["f1_macro"] == pytest.approx(macro)
    each = f1_score(labels, predicted, average=None, labels=occurring)
    assert {k: v for k, v in scored.items() if "class" in k} == pytest.approx(
        {f"f1_class_{c}": v for c, v in zip(occurring, each, strict=True)}
    )


def test_the_probe_is_scikit_learns_logistic_regression():
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    digits = load_digits()
    x = torch.tensor(digits.data).float()
    y = torch.tensor(digits.target)
    x = x[:, x.std(0) > 0]
    ours = probe.linear_probe(x[:900], y[:900], x[900:], 10, iterations=1000)
    standard = ((x - x[:900].mean(0)) / (x[:900].std(0, correction=0) + 1e-6)).numpy()
    theirs = (
        LogisticRegression(C=1.0, max_iter=2000, tol=1e-6)
        .fit(standard[:900], y[:900].numpy())
        .predict(standard[900:])
    )
    assert (ours.numpy() == theirs).mean() > 0.995
    assert (ours == y[900:]).double().mean() > 0.9


def test_evaluate_gives_every_score_from_one_call():
    generator = seeded(1)
    labels = torch.arange(60) % 3
    z = F.one_hot(labels, 3).float() + 0.1 * torch.randn(60, 3, generator=generator)
    evaluation = evaluate(z[:40], labels[:40], z[40:], labels[40:], 3, classifier="probe")
    assert evaluation.metrics["accuracy"] == evaluation.metrics["probe"] == 1.0
    assert evaluation.metrics["similarity_margin"] > 0.5
    assert {name: len(values) for name, values in evaluation.items.items()} == dict.fromkeys(
        evaluation.items, 20
    )
    # Each metric that is a mean over test items has their values, by which arms are compared; medians are no means.
    means = evaluation.items.keys() - {"target_similarity", "noise_similarity"}
    assert {"accuracy", "probe", "map_at_r", "r_precision", "recall_at_1"} < means
    for name in means:
        assert evaluation.items[name].mean() == pytest.approx(evaluation.metrics[name])


# Scores that a study asks for.


def test_weighted_neighbours_vote_by_the_papers_weights():
    """Wu et al. 2018, section 3.4: w_c = sum_i exp(cosine / .07) over the k nearest of class c."""
    generator = seeded(1)
    train, test = (torch.randn(n, 3, generator=generator) for n in (60, 15))
    labels = torch.randint(4, (60,), generator=generator)
    wanted = torch.randint(4, (15,), generator=generator)
    metrics, items = weighted_knn(train, labels, test, wanted, 4)
    for k in (20, 200):
        for i, query in enumerate(test):
            cosines = [float(torch.cosine_similarity(query, row, dim=0)) for row in train]
            nearest = sorted(range(60), key=lambda j, cosines=cosines: -cosines[j])[:k]
            weights = [
                sum(math.exp(cosines[j] / 0.07) for j in nearest if labels[j] == c)
                for c in range(4)
            ]
            assert items[f"weighted_knn{k}"][i] == (weights.index(max(weights)) == int(wanted[i]))
        assert metrics[f"weighted_knn{k}"] == pytest.approx(items[f"weighted_knn{k}"].mean())


def test_a_probe_by_sgd_and_clusters_find_what_is_there():
    generator = seeded(0)
    labels = torch.arange(3).repeat(40)
    features = 4 * torch.eye(5)[labels] + torch.randn(120, 5, generator=generator)
    metrics, items = sgd_probe(features[:60], labels[:60], features[60:], labels[60:], 3)
    exact = probe.linear_probe(features[:60], labels[:60], features[60:], 3, penalty=1e-3)
    assert metrics["sgd_probe"] > 0.9
    assert int(items["sgd_probe"].sum()) == pytest.approx(int((exact == labels[60:]).sum()), abs=3)
    found, _ = nmi(features[:60], labels[:60], features[60:], labels[60:], 3)
    noise = torch.randn(60, 5, generator=generator)
    assert found["nmi"] > 0.8 > 0.3 > nmi(features, labels, noise, labels[60:], 3)[0]["nmi"]


def test_a_probe_on_few_labels_sees_one_in_a_hundred_of_each_class_and_one_at_least():
    labels = torch.arange(3).repeat_interleave(torch.tensor([250, 100, 1]))
    order = torch.randperm(len(labels), generator=seeded(0))
    seen = [
        row
        for label, count in enumerate((3, 1, 1))
        for row in order[labels[order] == label][:count].tolist()
    ]
    features = torch.full(
        (len(labels), 3), torch.nan
    )  # a row that is not to be seen makes the fit fail
    features[seen] = torch.eye(3)[labels[seen]]
    metrics, items = few_labels(features, labels, torch.eye(3), torch.tensor([0, 1, 1]), 3)
    assert metrics["few_labels"] == pytest.approx(2 / 3)
    assert items["few_labels"].tolist() == [1, 1, 0]


def test_what_is_asked_for_is_in_metrics_and_items_and_changes_nothing_else():
    generator = seeded(0)
    labels = torch.arange(3).repeat(20)
    features = torch.eye(5)[labels] + torch.randn(60, 5, generator=generator)
    data = (features[:30], labels[:30], features[30:], labels[30:], 3)
    plain = evaluate(*data)
    more = evaluate(*data, extra=tuple(EXTRA))
    names = {"weighted_knn20", "weighted_knn200", "sgd_probe", "nmi", "few_labels"}
    assert set(more.metrics) - set(plain.metrics) == names and names - set(more.items) == {"nmi"}
    assert {name: more.metrics[name] for name in plain.metrics} == dict(plain.metrics)
