"""The cross-entropy family: each positive against everything that it has to beat. Values per anchor.

Scores [n m], larger = more alike; `positives` and `negatives` [n m] are disjoint. A pair in neither (an anchor with
itself) counts nowhere: it is masked before any maximum is taken, so that temperatures down to .001 are exact. An anchor
without positives has value 0. `epsilon` is in logit units: it is subtracted after the division by the temperature, from
the positive's term in the denominator only. Above 0 it lets a loss go down to -epsilon.
"""

from contrasweep.trainables.fields import NotNegative, Positive
from contrasweep.trainables.losses.batch import Mask, PerAnchor, Scores
from contrasweep.trainables.pytorch import F, torch


def supcon(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    temperature: Positive = 0.1,
    epsilon: NotNegative = 0.0,
    base_temperature: Positive | None = None,
) -> PerAnchor:
    """mean_p -log e^{s_ip/t} / (sum_{q in P} e^{s_iq/t - eps} + sum_N e^{s_in/t}) (Khosla et al. 2020, equation 2).

    s are the scores, t is `temperature`, eps `epsilon`; P are the positives p of an anchor i, N are its negatives n.

    `base_temperature` multiplies the loss by temperature / base_temperature, as SupContrast's code does. It is there to
    reproduce that code's numbers only, since it ties the size of the gradient to the temperature.
    """
    # The value is log(denominator) less the mean of the positives' logits.
    logits = scores / temperature
    log_denominator = masked_logsumexp(
        torch.where(positives, logits - epsilon, logits), positives | negatives
    )
    values = _where_positive(log_denominator - masked_mean(logits, positives), positives)
    return values if base_temperature is None else values * (temperature / base_temperature)


def sincere(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    temperature: Positive = 0.1,
    epsilon: NotNegative = 0.0,
) -> PerAnchor:
    """SINCERE: mean_p -log e^{s_ip/t} / (e^{s_ip/t - eps} + sum_N e^{s_in/t}) (Feeney & Hughes 2023).

    s are the scores, t is `temperature`, eps `epsilon`; p are the positives of an anchor i, N are its negatives n. A
    positive need not beat the other positives. With eps > 0 it is eps-SupInfoNCE (Barbano et al. 2023).
    """
    # x = s_ip/t, A the log-sum-exp of the negatives: log(e^{-eps} + e^{A - x}) = -logsigmoid(x - A - eps) - eps.
    logits = scores / temperature
    log_negatives = masked_logsumexp(logits, negatives)[:, None]
    return masked_mean(-F.logsigmoid(logits - log_negatives - epsilon) - epsilon, positives)


def infonce(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    temperature: Positive = 0.1,
    epsilon: NotNegative = 0.0,
) -> PerAnchor:
    """InfoNCE: -log e^{s+/t} / (e^{s+/t - eps} + sum_N e^{s_in/t}) (van den Oord et al. 2018; SimCLR's NT-Xent).

    s are the scores, t is `temperature`, eps `epsilon`. The positive (s+) is the other view of the same instance, and
    all other rows are the negatives N.
    """
    return sincere(scores, positives, negatives, temperature=temperature, epsilon=epsilon)


def ocl(
    scores: Scores, positives: Mask, negatives: Mask, *, temperature: Positive = 1.0
) -> PerAnchor:
    """OCL: mean_p -[s_ip/t - log(sum_P e^{s_iq/t} + sum_N e^{|s_in|/t})] (LOCAL, equation 3).

    s are the scores, t is `temperature`; P are the positives p of an anchor i, N are its negatives n. LOCAL is the
    paper of `trainables.paired`. Classes are pushed to be orthogonal and not opposite. The paper's
    appendix has |s| on positives too, which would let antipodal positives reach the minimum; as in equation 3, they
    have s here.
    """
    # The value is log(denominator) less the mean of the positives' logits.
    logits = scores / temperature
    log_denominator = masked_logsumexp(
        torch.where(negatives, logits.abs(), logits), positives | negatives
    )
    return _where_positive(log_denominator - masked_mean(logits, positives), positives)


def masked_logsumexp(x: Scores, mask: Mask) -> PerAnchor:
    """Return log sum exp over the entries of each row where `mask` is true; -inf where there is none.

    Such a row has a gradient of 0.
    """
    return torch.logsumexp(x.masked_fill(~mask, -torch.inf), dim=1)


def masked_mean(x: Scores, mask: Mask) -> PerAnchor:
    """Return the mean over the entries of each row where `mask` is true; 0 where there is none."""
    return x.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp(min=1)


def _where_positive(values: PerAnchor, positives: Mask) -> PerAnchor:
    """Return the values, with 0 for each anchor without a positive."""
    return torch.where(positives.any(1), values, torch.zeros_like(values))
