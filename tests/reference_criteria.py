"""Literal, slow references for the criteria: loops and retraining, no code shared with the library."""

import numpy as np
import reference
from scipy.optimize import minimize
from sklearn.svm import SVC, SVR

ENDLESS = 1e9  # a penalty so large that scikit-learn's machine has a hard margin


def train(gram, y, C, squared, offset, weights):
    """`y * alpha` and the offset of a support vector machine, of eq. 4 or 5 of Gold and Sollich."""
    n = len(y)
    if squared:
        gram = gram + np.diag(1 / (C * weights))
    upper = np.full(n, np.inf) if squared else C * weights
    if not offset:
        signed = y[:, None] * gram * y[None, :] + 1e-13 * np.eye(n)
        alpha = reference.box_qp(signed, np.ones(n), np.zeros(n), upper)
        alpha[alpha < 1e-9] = 0
        alpha = np.where(alpha > upper - 1e-9, upper, alpha)
        return y * alpha, 0.0
    machine = SVC(C=ENDLESS if squared else C, kernel="precomputed", tol=1e-11)
    machine.fit(gram, y, sample_weight=np.ones(n) if squared else weights)
    dual = np.zeros(n)
    dual[machine.support_] = machine.dual_coef_[0]
    return _polish(gram, y, upper, dual)


def _polish(gram, y, upper, dual):
    """The machine with the same groups to full precision: libsvm keeps its kernel in single precision."""
    alpha = y * dual
    free = np.flatnonzero((alpha > 1e-5 * alpha.max()) & (alpha < upper * (1 - 1e-5)))
    bound = np.flatnonzero(alpha >= upper * (1 - 1e-5))
    exact = np.zeros(len(y))
    exact[bound] = (y * upper)[bound]
    ones = np.ones((len(free), 1))
    system = np.block([[gram[np.ix_(free, free)], ones], [ones.T, np.zeros((1, 1))]])
    right = np.append(y[free] - gram[free] @ exact, -exact.sum())
    answer = np.linalg.solve(system, right)
    exact[free] = answer[:-1]
    margin, alpha = y * (gram @ exact + answer[-1]), y * exact
    assert np.all((alpha >= 0) & (alpha <= upper))
    assert np.all(margin[alpha == 0] >= 1 - 1e-9) and np.all(margin[bound] <= 1 + 1e-9)
    return exact, answer[-1]


def group(dual, C, squared, weights):
    """0 for non-support, 1 for free, 2 for bound examples, by a loop."""
    groups = []
    for coefficient, weight in zip(np.abs(dual), weights, strict=True):
        if coefficient <= 1e-8 * C:
            groups.append(0)
        elif squared or coefficient < C * weight * (1 - 1e-8):
            groups.append(1)
        else:
            groups.append(2)
    return np.array(groups)


def leave_one_out(gram, y, C, squared, offset, weights):
    """`f_i^(-i)` of each example, and whether all the others stay in their groups without it."""
    n = len(y)
    dual, _ = train(gram, y, C, squared, offset, weights)
    before = group(dual, C, squared, weights)
    latent, unchanged = np.empty(n), np.empty(n, bool)
    for i in range(n):
        rest = np.array([j for j in range(n) if j != i])
        dual, shift = train(gram[np.ix_(rest, rest)], y[rest], C, squared, offset, weights[rest])
        latent[i] = gram[i, rest] @ dual + shift
        unchanged[i] = np.array_equal(group(dual, C, squared, weights[rest]), before[rest])
    return latent, unchanged


def span(matrix, i, penalty, offset):
    """`min l' matrix l + sum_(j != i) penalty_j l_j^2` with `l_i = -1`, and `sum(l) = 0` with an offset.

    Eq. 11 of Gold and Sollich and its smoothed form, as a least-squares problem: `l = -e_i + B t` runs
    over all allowed vectors.
    """
    n = len(matrix)
    first = np.zeros(n)
    first[i] = -1
    others = [j for j in range(n) if j != i]
    columns = [np.eye(n)[j] for j in others]
    if offset:  # the first of the others takes what the sum needs
        first[others[0]] = 1
        columns = [np.eye(n)[j] - np.eye(n)[others[0]] for j in others[1:]]
    penalty = np.array([0 if j == i else penalty[j] for j in range(n)])
    root = np.linalg.cholesky(matrix + np.diag(penalty)).T
    basis = np.array(columns).T
    t = np.linalg.lstsq(root @ basis, -root @ first, rcond=None)[0]
    return np.sum((root @ (first + basis @ t)) ** 2)


def smoothed_span_estimate(gram, alpha, C, c1, c2, eta, offset, weights):
    """The smoothed form of eq. 12 of Gold and Sollich, example by example."""
    support = [i for i in range(len(alpha)) if alpha[i] > 0]
    matrix = np.array([[gram[i, j] for j in support] for i in support])
    matrix += np.diag([1 / (C * weights[i]) for i in support])
    penalty = np.array([eta / alpha[i] for i in support])
    total = 0.0
    for i in range(len(alpha)):
        squared_span = 0.0  # not used where alpha is zero
        if i in support:
            squared_span = span(matrix, support.index(i), penalty, offset)
        z = alpha[i] * squared_span - 1
        total += weights[i] / (1 + np.exp(-c1 * z + c2))
    return total / sum(weights)


def raw_span_estimate(gram, alpha, C, offset, weights):
    """Eq. 12 of Gold and Sollich: a count of errors, divided by n."""
    support = [i for i in range(len(alpha)) if alpha[i] > 0]
    matrix = np.array([[gram[i, j] for j in support] for i in support])
    matrix += np.diag([1 / (C * weights[i]) for i in support])
    total = 0.0
    for k, i in enumerate(support):
        squared_span = span(matrix, k, np.zeros(len(support)), offset)
        total += weights[i] * (alpha[i] * squared_span > 1)
    return total / sum(weights)


def gacv(gram, y, latent, alpha, weights):
    """Eq. 13 of Gold and Sollich; a margin of one but for rounding counts as one."""
    total = 0.0
    for i in range(len(y)):
        z = y[i] * latent[i]
        factor = 2 if z < -1 else 1 if z <= 1 + 1e-9 else 0
        total += weights[i] * (max(1 - z, 0) + alpha[i] * gram[i, i] * factor)
    return total / sum(weights)


def jaakkola_haussler(gram, y, latent, alpha, weights):
    """The share of examples whose margin could become negative without them."""
    total = 0.0
    for i in range(len(y)):
        total += weights[i] * (y[i] * latent[i] - alpha[i] * gram[i, i] < 0)
    return total / sum(weights)


def support_vector_count(y, latent, alpha, weights):
    """Training errors and support vectors, counted."""
    total = 0.0
    for i in range(len(y)):
        total += weights[i] * (int(y[i] * latent[i] < 0) + int(alpha[i] > 0))
    return total / sum(weights)


def squared_radius(gram):
    """`R^2` of the smallest ball around points with these inner products, by a general optimizer."""
    n = len(gram)
    heights = np.array([gram[i, i] for i in range(n)])
    answer = minimize(
        lambda b: b @ gram @ b - heights @ b,
        np.full(n, 1 / n),
        jac=lambda b: 2 * gram @ b - heights,
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1, "jac": lambda b: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return -answer.fun


def stratified_folds(y, folds):
    """The k-th example of its class is in fold `k mod folds`."""
    seen = {}
    answer = []
    for label in y:
        answer.append(seen.get(label, 0) % folds)
        seen[label] = seen.get(label, 0) + 1
    return np.array(answer)


def cross_validation(gram, y, C, squared, offset, weights, fold):
    """The latent value of each example, by a machine trained on the other folds."""
    latent = np.empty(len(y))
    for k in set(fold):
        held, rest = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        dual, shift = train(gram[np.ix_(rest, rest)], y[rest], C, squared, offset, weights[rest])
        latent[held] = gram[np.ix_(held, rest)] @ dual + shift
    return latent


def regression_cross_validation(gram, y, C, epsilon, fold):
    """The same for scikit-learn's support vector regression, which has a free offset."""
    latent = np.empty(len(y))
    for k in set(fold):
        held, rest = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        machine = SVR(C=C, epsilon=epsilon, kernel="precomputed", tol=1e-11)
        machine.fit(gram[np.ix_(rest, rest)], y[rest])
        latent[held] = machine.predict(gram[np.ix_(held, rest)])
    return latent
