"""Wrong decisions, each a line of a solver off by a plausible mistake, that tests must notice.

    python tests/solver_mutants.py                      every mutant, some ten minutes
    python tests/solver_mutants.py --sample 8 --seed 3  some of them
    python tests/solver_mutants.py --own                only the tests that are named beside each
    python tests/solver_mutants.py --only omega         those whose file or reason contains a word

A mutant is the package with ``old`` replaced by ``new`` in one file.  Tests that state laws,
budgets and rates run against it until the first one fails: then it is killed.  The exit status is 1
if one survives.  A survivor is either a missing test, or code that nobody would miss.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "stiefel"
# What runs against a mutant that its own tests do not notice.
PIECES = "test_solver_pieces.py"
LONG_STEPS = "test_two_sided.py"
BUDGETS = "test_budgets.py"
RATES = "test_rates.py"
EVALUATIONS = "test_evaluations.py"
METRICS = "test_learned_metric.py"
HOSTILE = "test_trust_hostile.py"
ROUNDING = "test_trust_rounding.py"
PAIRS_KEPT = "test_secant.py"
PLAIN_PAIRS = "test_plain_pairs.py"
LEARNED = "test_nonsmooth_learned.py"
TESTS = (PIECES, LONG_STEPS, BUDGETS, RATES, HOSTILE)

FRAMES = "test_frames.py"
LEAVES = "test_row_leaves.py"
STACKS = "test_stack_pairs.py"
DOUBTS = "test_doubt.py"

WIDE_RAYS = "test_wide.py"

# Where the lines stand.
WIDE = "geometry/wide.py"
AIMS = "solvers/aims.py"
FRAMED = "geometry/framed_ray.py"
METRIC = "solvers/learned_metric.py"
LEAF_SCALES = "solvers/leaves.py"
STACK_PAIRS = "solvers/stack_pairs.py"
SCALES = "solvers/vector_scales.py"
SCALES_TESTS = "test_vector_scales.py"
OPERATOR = "nonsmooth/learned_operator.py"
LEAPS = "nonsmooth/leap.py"
QUASI_NEWTON = "nonsmooth/quasi_newton.py"
STEIHAUG = "solvers/steihaug.py"
TRUST = "solvers/trust_region.py"
CG = "solvers/conjugate_gradient.py"
LBFGS = "solvers/lbfgs.py"
PAIRS = "solvers/memory.py"
PLAIN = "solvers/plain_pairs.py"
ROWS = "solvers/row_model.py"
ROW_MEMORY = "solvers/row_memory.py"
RITZ = "solvers/row_ritz.py"
RECOGNITION = "solvers/row_recognition.py"
ROW_LEAVES = "solvers/row_leaves.py"
ROTATIONS = "solvers/row_rotations.py"
SECANT = "solvers/secant_search.py"
TWO_SIDED = "solvers/two_sided.py"
WOLFE = "solvers/wolfe.py"
ACCELERATED = "solvers/accelerated.py"
MOMENTUM = "solvers/momentum.py"
NOISE = "solvers/noise.py"
DOUBT = "solvers/doubt.py"
DRIVER = "runs/driver.py"
LEDGER = "runs/ledger.py"
STRIDES = "solvers/strides.py"
PLAIN_STRIDES = "test_plain_strides.py"
STOPPING = "runs/stopping.py"


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    why: str
    tests: str  # the file that should notice …
    words: str  # … and the tests in it, as ``pytest -k`` takes them
    compiled: bool = False  # in text that calls kernels for more than speed

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


MUTANTS = (
    Mutant(
        PAIRS,
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 30_000",
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 0, 30_000",
        "memory: ten pairs of one small matrix",
        "test_cost.py",
        "small_matrix",
    ),
    Mutant(
        PAIRS,
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 30_000",
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 0, 15_000, 30_000",
        "memory: ten pairs of a stack",
        "test_cost.py",
        "stack_keeps",
    ),
    Mutant(
        PAIRS,
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 30_000",
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 0",
        "memory: ten pairs of a complex vector",
        "test_cost.py",
        "complex_vector",
    ),
    Mutant(
        WIDE,
        "self.straightened = defect > (DRIFT",
        "self.straightened = defect > (1e6 * DRIFT",
        "wide: X is never straightened",
        WIDE_RAYS,
        "stay or drifted",
    ),
    Mutant(
        WIDE,
        "and SCALES[0] < square < SCALES[1]",
        "",
        "wide: squares overflow",
        WIDE_RAYS,
        "sizes",
    ),
    Mutant(
        WIDE,
        "square > TangentRay.LOSSY * whole and",
        "",
        "wide: what is hardly tangent",
        WIDE_RAYS,
        "hardly",
    ),
    Mutant(
        AIMS,
        "wide = None if modelled else kernels_of_wide_rays(geometry, x)",
        "wide = kernels_of_wide_rays(geometry, x)",
        "wide: a resumed row model has another ray",
        WIDE_RAYS,
        "row_models_have",
    ),
    Mutant(
        AIMS,
        "FEWEST_COLUMNS, ROWS_A_COLUMN = 20, 16",
        "FEWEST_COLUMNS, ROWS_A_COLUMN = 20, 1",
        "wide: for no matrix",
        WIDE_RAYS,
        "many_columns",
    ),
    Mutant(
        "solvers/row_recognition.py",
        "and len(seen.SY) > gates.widest and not old.looks",
        "and False",
        "wide: looks that cannot succeed",
        WIDE_RAYS,
        "looked_at_once",
    ),
    Mutant(
        "solvers/row_recognition.py",
        "abs(one - other.conjugate())",
        "abs(one + other.conjugate())",
        "wide: products are taken for others",
        WIDE_RAYS,
        "not_contradicted",
    ),
    Mutant(FRAMED, "DRIFT = 6.0", "DRIFT = 1e6", "frames: X is never straightened", FRAMES, "stay"),
    Mutant(
        FRAMED,
        "FRAME_DRIFT = 20.0",
        "FRAME_DRIFT = 1e6",
        "frames: the rest of Q drifts",
        FRAMES,
        "stay",
    ),
    Mutant(
        METRIC,
        "if not verdict > most:",
        "if verdict < math.inf:",
        "scales of columns that mislead are kept",
        METRICS,
        "mislead",
    ),
    Mutant(
        METRIC,
        "worst_beside_rotations: float = 2.0",
        "worst_beside_rotations: float = 1e9",
        "scales of columns that mislead are kept where f knows of rotations",
        METRICS,
        "mislead_a_stack",
    ),
    Mutant(
        METRIC,
        "verdict = max(0.0, new.verdict + _mistake(*sample))",
        "verdict = max(0.0, new.verdict - _mistake(*sample))",
        "scales of columns that help are dropped",
        METRICS,
        "spans_whose_columns",
    ),
    Mutant(
        METRIC,
        "return self._weigh(old, pair.curvature)",
        "return old",
        "frames: omega is not learned",
        FRAMES,
        "weighed",
    ),
    Mutant(
        METRIC,
        "self.early if span else self.settled",
        "self.settled",
        "functions of the span are looked at as long as others",
        METRICS,
        "looked_at_less",
    ),
    Mutant(
        METRIC,
        "self.early if span else self.settled",
        "0 if span else self.settled",
        "functions of the span are looked at too little",
        METRICS,
        "looked_at_less",
    ),
    Mutant(
        LBFGS,
        "if t >= CONTRADICTED or (pairs.apart is not None and pairs.apart.on):",
        "if t >= CONTRADICTED:",
        "a step that is short for one matrix empties the memory of all",
        STACKS,
        "vectors_are_looked_at_again",
    ),
    Mutant(
        LBFGS,
        "CONTRADICTED = 0.3",
        "CONTRADICTED = 0.0",
        "pairs that a step contradicts are kept",
        EVALUATIONS,
        "contradicts_are_forgotten",
    ),
    Mutant(
        LBFGS,
        "if pair is None:  # of a step by an exact model that ends here",
        "if False:",
        "an exact model that ends leaves no pair",
        "test_row_model.py",
        "ends_an_exact_model",
    ),
    Mutant(
        SECANT,
        "end = problem.geometry.dot(at.G, curve.transported_velocity(t))",
        "end = problem.geometry.dot(at.G, curve.velocity(0.0))",
        "the slope at the end of a step by the model is along its beginning",
        "test_secant.py",
        "same_slope",
    ),
    Mutant(
        ROWS,
        "if known is None or known.strain <= MOST_STRAIN:",
        "if True:",
        "a model whose steps are too long goes on for ever",
        "test_row_model.py",
        "stumbles",
    ),
    Mutant(
        ROWS,
        "return Rows(looking.with_columns_known(known.columns.D, REST_OF_STRAINED << known.rests))",
        "return GIVEN_UP",
        "a model that has rested never comes back",
        "test_row_model.py",
        "stumbles",
    ),
    Mutant(
        ROWS,
        "patient=n < MANY_ROWS and not dear",
        "patient=False",
        "a constant part is asked for in the first steps",
        "test_row_model.py",
        "asked_for_late",
    ),
    Mutant(
        RECOGNITION,
        "FAST = 1e-3",
        "FAST = 0.0",
        "a constant part is asked for where the run is nearly over",
        "test_row_model.py",
        "falls_fast",
    ),
    Mutant(
        RECOGNITION,
        "FAST = 1e-3",
        "FAST = math.inf",
        "a constant part is never asked for",
        "test_row_model.py",
        "falls_fast",
    ),
    Mutant(
        ROWS,
        "if old.full and not len(ritz.theta):",
        "if False:",
        "a full memory without Ritz pairs is made smaller to nothing",
        "test_row_model.py",
        "begins_anew",
    ),
    Mutant(
        RECOGNITION,
        "return seen.asymmetry_with_point(D, zero, zero) <= gate",
        "return True",
        "a gradient with a constant part is taken for one without",
        "test_row_model.py",
        "linear_term or third_step",
    ),
    Mutant(
        RECOGNITION,
        "if not fits and not span and len(D) <= gates.widest:",
        "if False:",
        "the mirrored point is never asked",
        "test_row_model.py",
        "linear_term or third_step",
    ),
    Mutant(
        ROWS,
        "if of_all > self._agreed(exact):",
        "if False:",
        "memory that has decayed is kept",
        "test_row_model.py",
        "decayed",
    ),
    Mutant(
        RECOGNITION,
        "if old.inexact and old.rests and found <= gates.nearly:",
        "if False:",
        "nearly quadratic functions of the span are left alone",
        "test_row_model.py",
        "span_gain",
    ),
    Mutant(
        RECOGNITION,
        "if old.inexact and old.rests and found <= gates.nearly:",
        "if old.inexact and found <= gates.nearly:",
        "inexact models begin at once",
        "test_row_model.py",
        "short_runs",
    ),
    Mutant(
        RECOGNITION,
        "(old.rests or not hopeless)",
        "True",
        "five looks at a span that has no exact structure",
        "test_row_model.py",
        "one_look",
    ),
    Mutant(
        ROWS,
        "nearly: float = 0.01",
        "nearly: float = 0.03",
        "functions of the span that an operator hardly explains are modelled",
        "test_row_model.py",
        "less_closely",
    ),
    Mutant(
        ROWS,
        "min(DEAR_NEARLY * self.nearly, 0.99)",
        "self.nearly",
        "dear functions are modelled as closely as others",
        "test_row_model.py",
        "less_closely",
    ),
    Mutant(
        ROWS,
        "SMALL_SPAN < n * k < LONG_MATRIX",
        "SMALL_SPAN < n * k",
        "long points are modelled inexactly",
        "test_row_model.py",
        "long_points",
    ),
    Mutant(
        ROWS,
        "return self.decay if exact else self.nearly",
        "return self.decay",
        "older blocks of an inexact model agree as little as those of an exact one",
        "test_row_model.py",
        "older_blocks",
    ),
    Mutant(
        PAIRS,
        "return max(2 * memory // 5, 1)",
        "return memory",
        "long matrices keep all pairs",
        "test_cost.py",
        "long_matrices",
    ),
    Mutant(
        ROTATIONS,
        "factor = well_conditioned_cholesky(S, SOFTEST)",
        "factor = well_conditioned_cholesky(S, 0.0)",
        "soft rotations are inverted as they are",
        "test_row_rotations.py",
        "soft_rotation",
    ),
    Mutant(
        ROW_MEMORY,
        "WX[:, :p] = moved.dot(inverse(np.eye(k) - B))",
        "WX[:, :p] = moved.dot(inverse(np.eye(k) + B))",
        "Gram matrices carried to another point",
        "test_row_model.py",
        "carried",
    ),
    Mutant(
        RITZ,
        "if sums[worst] <= UNRELIABLE**2:",
        "if True:",
        "Ritz vectors with errors are used",
        "test_row_model.py",
        "worst_ritz or span_gain",
    ),
    Mutant(
        ROW_LEAVES,
        "leaves = tuple(old if new.on else new for old, new in both)",
        "pass",
        "some matrices of a stack have models",
        LEAVES,
        "modelled_together",
    ),
    Mutant(
        ROW_LEAVES,
        "WAITS = 1e-4",
        "WAITS = 0.0",
        "a leaf that is far ahead goes on into rounding",
        LEAVES,
        "far_ahead",
    ),
    Mutant(
        ROW_LEAVES,
        "not stack and all(span or leaf.exact for span, leaf in pairs)",
        "not stack",
        "inexact models beside leaves without any",
        LEAVES,
        "same_bits",
    ),
    Mutant(
        ROW_LEAVES,
        "not stack and all(span or leaf.exact for span, leaf in pairs)",
        "False",
        "no inexact models in trees",
        LEAVES,
        "densities",
    ),
    Mutant(
        ROW_LEAVES,
        "min(1.0, longest / (factor.bounded_length(T) or longest))",
        "1.0",
        "steps of models in trees have no bound",
        LEAVES,
        "hold_up",
    ),
    Mutant(
        ROW_LEAVES,
        "if old.exact and _waits(factors[i], at0, i):",
        "if False:",
        "a leaf that waits learns from rounding",
        LEAVES,
        "far_ahead",
    ),
    Mutant(
        ROW_LEAVES,
        "return model.seen_again(factors[i], old, own.at)",
        "return old",
        "a leaf that waits does not see what others do to its gradient",
        LEAVES,
        "sees_its_gradient",
    ),
    Mutant(
        RECOGNITION,
        "level = 0.5 * (small(k, ends.at.level) - small(k, mirrored.level))",
        "level = 0.5 * (small(k, ends.at.level) + small(k, mirrored.level))",
        "a wrong constant part",
        "test_row_model.py",
        "third_step",
    ),
    Mutant(
        METRIC,
        "if not metric.horizontal and tA > 0 and sN > 0:",
        "if False:",
        "omega is never learned",
        PIECES,
        "softer",
    ),
    Mutant(
        METRIC,
        "math.sqrt(tN * sA / (sN * tA))",
        "(tN * sA / (sN * tA))",
        "omega without its root",
        PIECES,
        "softer",
    ),
    Mutant(
        METRIC,
        "math.sqrt(tN * sA / (sN * tA))",
        "math.sqrt(sN * tA / (tN * sA))",
        "omega upside down",
        PIECES,
        "softer",
    ),
    Mutant(
        METRIC,
        "rotation_range: float = 1000.0",
        "rotation_range: float = 4.0",
        "omega ≤ 4",
        PIECES,
        "softer",
    ),
    Mutant(
        METRIC,
        "if new.weight > self.news * new.judged:",
        "if False:",
        "D is never learned",
        METRICS,
        "scales_of_columns",
    ),
    Mutant(
        METRIC,
        "seen = balanced(geometry, X, pair, seen, self.memory, self.least_share)",
        "pass",
        "leaves of a tree are not balanced",
        PIECES,
        "leaves_of_a_tree",
    ),
    Mutant(
        PAIRS,
        "ROOM_OF_REAL_VECTOR = 5_000",
        "ROOM_OF_REAL_VECTOR = 0",
        "a short real vector keeps ten pairs",
        "test_cost.py",
        "short_real_vector",
    ),
    Mutant(
        AIMS,
        "ray.first = None if ray.straightened else first",
        "ray.first = first",
        "a first trial is kept though the point that it was made from was moved",
        "test_strides.py",
        "has_drifted",
        compiled=True,
    ),
    Mutant(
        METRIC,
        "rotations, normals = (sums[0], sums[1]), (sums[2], sums[3])",
        "normals, rotations = (sums[0], sums[1]), (sums[2], sums[3])",
        "a step in one call takes rotations for normal parts",
        "test_strides.py",
        "nearly_square_matrices_have_the_same_bits",
        compiled=True,
    ),
    Mutant(
        STRIDES,
        "return found, found is None and not metric.passes_over(learned)",
        "return found, False",
        "a step that only the formulas can learn from is taken in one call",
        "test_strides.py",
        "many_columns_have_the_same_bits",
        compiled=True,
    ),
    Mutant(
        STRIDES,
        "and len(used) in LOOKED_AT:",
        "and len(used) < 0:",
        "steps after which vectors are looked at one by one are taken in one call",
        STACKS,
        "unit_vectors_of_unlike_scales",
        compiled=True,
    ),
    Mutant(
        STRIDES,
        "return -math.inf < f - self.start.f <= wanted",
        "return -math.inf < f - self.start.f",
        "steps are taken in one call whether f falls or not",
        PLAIN_STRIDES,
        "same_bits",
        compiled=True,
    ),
    Mutant(
        SCALES,
        "return self.score, SCORE_MEMORY, self._least, CHANGE * CHANGE, uses, may",
        "return self.score, SCORE_MEMORY, self._least, CHANGE * CHANGE, uses, False",
        "a step in one call is no reason to change the scales of unit vectors",
        PLAIN_STRIDES,
        "same_steps or agree_on",
        compiled=True,
    ),
    Mutant(
        SCALES,
        "FIRST_LOOK = 5",
        "FIRST_LOOK = 0",
        "unit vectors are looked at from the first step on",
        SCALES_TESTS,
        "from_the_sixth_on",
    ),
    Mutant(
        PLAIN,
        "pairs = rescaled(pairs, vectors)",
        "pairs = pairs._replace(vectors=vectors)",
        "another D of unit vectors leaves their squares as they were",
        SCALES_TESTS,
        "aims_as_the_textbook",
    ),
    Mutant(
        SCALES,
        "BETTER, NO_BETTER = 0.1,",
        "BETTER, NO_BETTER = -1.0,",
        "unit vectors that are alike have scales of noise",
        SCALES_TESTS,
        "refused_where",
    ),
    Mutant(
        SCALES,
        "BETTER, NO_BETTER = 0.1,",
        "BETTER, NO_BETTER = 1e9,",
        "unit vectors never get scales",
        SCALES_TESTS,
        "save_evaluations",
    ),
    Mutant(
        SCALES,
        "NO_BETTER = 0.1, 0.0",
        "NO_BETTER = 0.1, -9.0",
        "scales of unit vectors that do worse are kept",
        SCALES_TESTS,
        "do_worse",
    ),
    Mutant(
        SCALES,
        "CHANGE = 0.1 ",
        "CHANGE = 9.0 ",
        "unit vectors keep their first scales",
        SCALES_TESTS,
        "save_evaluations",
    ),
    Mutant(
        SCALES,
        "WAITING = 1.25",
        "WAITING = 3.0",
        "scales of unit vectors wait too long",
        SCALES_TESTS,
        "save_evaluations",
    ),
    Mutant(
        SCALES,
        "SCORE_MEMORY = 0.9",
        "SCORE_MEMORY = 0.0",
        "one bad step drops the scales of unit vectors",
        SCALES_TESTS,
        "save_evaluations or teach",
    ),
    Mutant(
        SCALES,
        "RANGE = 10.0",
        "RANGE = 2.0",
        "scales of unit vectors are bounded too tightly",
        SCALES_TESTS,
        "save_evaluations or teach",
    ),
    Mutant(
        SCALES,
        "told = ss > least_share * step",
        "told = ss >= 0",
        "vectors that do not move are learned from",
        SCALES_TESTS,
        "steps_teach",
    ),
    Mutant(
        SCALES,
        "self.looks < SETTLED or row % THINNING == 0",
        "self.looks < SETTLED",
        "scales of unit vectors are learned early only",
        SCALES_TESTS,
        "rarely_in_the_end",
    ),
    Mutant(
        STACK_PAIRS,
        "kept = (sy > 0) & ((1.0 - c2) * sG + c2 * sy >= 0)",
        "kept = sy > 0",
        "a matrix keeps pairs that the search would have refused",
        STACKS,
        "does_without_a_pair",
    ),
    Mutant(
        STACK_PAIRS,
        "np.fmin(np.abs(cross",
        "np.minimum(np.abs(cross",
        "products that overflow are no asymmetry",
        STACKS,
        "overflow",
    ),
    Mutant(
        METRIC,
        "(type(seen) is Split and seen.normal_step == 0.0)",
        "type(seen) is Split",
        "nearly square matrices learn nothing",
        FRAMES,
        "weighed_against",
    ),
    Mutant(
        STACK_PAIRS,
        "LEAST_MOVED = 1e-10",
        "LEAST_MOVED = 0.0",
        "solved matrices of a stack are looked at",
        STACKS,
        "that_are_solved",
    ),
    Mutant(
        STACK_PAIRS,
        "on = mean < TOGETHER and (",
        "on = parted or mean < TOGETHER and (",
        "matrices of a stack never come together again",
        STACKS,
        "seen_late",
    ),
    Mutant(
        STACK_PAIRS,
        "(parted or (mean if doubted else typical) < APART)",
        "(mean if doubted else typical) < APART",
        "matrices of a stack come together at the first doubt",
        STACKS,
        "cost_little or holds_up",
    ),
    Mutant(
        STACK_PAIRS,
        "(mean if doubted else typical)",
        "mean",
        "few matrices of a stack that go far keep the others from parting",
        STACKS,
        "cost_little",
    ),
    Mutant(
        STACK_PAIRS,
        "(mean if doubted else typical)",
        "typical",
        "matrices of a stack part again and again",
        STACKS,
        "seen_late",
    ),
    Mutant(
        STACK_PAIRS,
        "APART, TOGETHER = 0.08,",
        "APART, TOGETHER = 0.29,",
        "matrices of a stack part too early",
        STACKS,
        "seen_late",
    ),
    Mutant(
        STACK_PAIRS,
        "SMOOTHING = 0.7",
        "SMOOTHING = 0.0",
        "one look at a stack decides",
        STACKS,
        "one_look",
    ),
    Mutant(
        LBFGS,
        "pairs, at.G, gamma, phi, self.longest)",
        "pairs, at.G, gamma, phi, 1e9)",
        "one matrix of a stack holds up the others",
        STACKS,
        "holds_up",
    ),
    Mutant(
        STACK_PAIRS,
        "return np.where(told, new, old)",
        "return np.where(told, old, old)",
        "matrices of a stack share their scale",
        STACKS,
        "nearly_square",
    ),
    Mutant(
        STACK_PAIRS,
        "5, 0.03, 4",
        "5, 0.08, 4",
        "unit vectors part too early",
        STACKS,
        "coupled_stay_together",
    ),
    Mutant(
        STACK_PAIRS,
        "5, 0.03, 4",
        "2, 0.03, 4",
        "one look at unit vectors decides",
        STACKS,
        "coupled_stay_together",
    ),
    Mutant(
        STACK_PAIRS,
        "5, 0.03, 4",
        "5, 0.03, 2",
        "two unit vectors part",
        STACKS,
        "coupled_stay_together",
    ),
    Mutant(
        PLAIN,
        "LOOKED_AT = (10, 15, 20, 25, 30)",
        "LOOKED_AT = (10,)",
        "unit vectors are looked at once",
        STACKS,
        "looked_at_again or unlike_scales",
    ),
    Mutant(
        LEAF_SCALES,
        "np.exp(0.5 * np.where(known",
        "np.exp(np.where(known",
        "balance of leaves without its root",
        PIECES,
        "leaves_of_a_tree",
    ),
    Mutant(
        METRIC,
        "return _can_learn(factor, x) and _is_small",
        "return _is_small",
        "columns are looked at as matrices",
        BUDGETS,
        "sphere-auto",
    ),
    Mutant(
        METRIC,
        "return _horizontal(learned, flags), False",
        "return learned, True",
        "a special start is believed for ever",
        PIECES,
        "without_rotations",
    ),
    Mutant(
        STEIHAUG,
        "dd = rz + beta * beta * dd",
        "dd = rz + beta * dd",
        "β for β² in ‖D‖²",
        PIECES,
        "steihaugs",
    ),
    Mutant(
        STEIHAUG,
        "wd = beta * (wd + alpha * dd)",
        "wd = beta * wd",
        "⟨W, D⟩ without its news",
        PIECES,
        "steihaugs",
    ),
    Mutant(
        STEIHAUG,
        "decrease += 0.5 * alpha * rz",
        "decrease += alpha * rz",
        "decrease doubled",
        PIECES,
        "steihaugs",
    ),
    Mutant(
        STEIHAUG,
        "if not curvature > 0 or not beyond < radius * radius:",
        "if not beyond < radius * radius:",
        "negative curvature inside of the region",
        PIECES,
        "steihaugs",
    ),
    Mutant(
        STEIHAUG,
        "<= tolerance * tolerance",
        "<= tolerance",
        "the residual against its own square",
        PIECES,
        "steihaugs",
    ),
    Mutant(
        STEIHAUG,
        "-accuracy * largest * dd <= curvature <= 0",
        "0.0 < curvature <= 0",
        "curvature that is rounding is followed",
        PIECES,
        "negative_curvature",
    ),
    Mutant(
        TRUST,
        "return 2.0 * radius",
        "return radius",
        "the radius never grows",
        PIECES,
        "radius_follows",
    ),
    Mutant(
        TRUST,
        "if ratio > GOOD and step.on_boundary:",
        "if ratio > GOOD:",
        "the radius grows within itself",
        PIECES,
        "radius_follows",
    ),
    Mutant(
        TRUST,
        "return 0.25 * min(",
        "return 0.9 * min(",
        "the radius shrinks by a tenth",
        PIECES,
        "radius_follows",
    ),
    Mutant(
        TRUST,
        "        if not ratio > self.least_ratio:\n            return self._reject",
        "        if not ratio > -math.inf:\n            return self._reject",
        "every step is accepted",
        PIECES,
        "radius_follows",
    ),
    Mutant(
        TRUST,
        "max(relative**self.residual_exponent, least)",
        "least",
        "each model is solved to four digits",
        BUDGETS,
        "trust-region",
    ),
    Mutant(
        TRUST,
        "if blind and at.norm >= s.at.norm:",
        "if False:",
        "beneath the noise a step may raise the gradient",
        PIECES,
        "beneath_the_noise",
    ),
    Mutant(
        TRUST,
        "return at.norm < 0.5 * s.at.norm and",
        "return False and",
        "a Newton step that noise refuses is refused",
        RATES,
        "trust-region",
    ),
    Mutant(
        CG,
        "- 2.0 * (p.yz / p.dy)",
        "+ 2.0 * (p.yz / p.dy)",
        "Hager and Zhang's sign",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "return max(beta, ETA * p.slope / p.dd)",
        "return beta",
        "β without its bound",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "return max(p.zg / p.old, 0.0)",
        "return p.zg / p.old",
        "Polak and Ribière below 0",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "return max(p.zg / p.dy, 0.0)",
        "return max(p.zg / p.old, 0.0)",
        "one rule for another",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "return p.new / p.dy",
        "return p.new / p.old",
        "Fletcher and Reeves for Dai and Yuan",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "dg - s.aim.slope,  # T",
        "dg,  # T",
        "⟨d, y⟩ as after an exact step",
        PIECES,
        "beta_follows",
    ),
    Mutant(
        CG,
        "first = found.t * s.aim.slope / aim.slope if aim.slope else 0.0",
        "first = found.t if aim.slope else 0.0",
        "the first trial forgets that directions have lengths",
        BUDGETS,
        "cg",
    ),
    Mutant(
        CG,
        "curvature: float = 0.1  # c₂",
        "curvature: float = 0.9  # c₂",
        "a loose search",
        BUDGETS,
        "cg",
    ),
    Mutant(
        LBFGS,
        "gamma = smoothed(mean, sy / square) if",
        "gamma = 3.0 * sy / square if",
        "H₀ three times too large",
        BUDGETS,
        "lbfgs",
    ),
    Mutant(
        LBFGS,
        "if not sy > least * math.sqrt(squared_length(geometry, pair)):",
        "if not sy > 0:",
        "pairs that hardly curve are kept",
        PAIRS_KEPT,
        "hardly_curve",
    ),
    Mutant(
        PAIRS,
        "_dot(geometry, Y, r) - diagonal * a).dot",
        "_dot(geometry, Y, r) - a).dot",
        "the two-loop recursion without ⟨s, y⟩",
        BUDGETS,
        "brockett-lbfgs",
    ),
    Mutant(
        PLAIN,
        "changes.dot(a)) - diagonal * a).dot",
        "changes.dot(a)) - a).dot",
        "the recursion of plain pairs without ⟨s, y⟩",
        PLAIN_PAIRS,
        "two_loop",
    ),
    Mutant(
        PAIRS,
        "gone, rows = rows[0], rows[1:]",
        "gone, rows = rows[-2], (*rows[:-2], rows[-1])",
        "the second newest pair is dropped instead of the oldest",
        BUDGETS,
        "brockett-lbfgs",
    ),
    Mutant(
        SECANT,
        "if end >= self.curvature * slope or t >= 0.99 * limit:",
        "if True:",
        "no curvature condition",
        PIECES,
        "far_too_short",
    ),
    Mutant(
        SECANT,
        "(rise <= level and area <= wanted and not doubts)",
        "(rise <= level and not doubts)",
        "no slope test in noise",
        PIECES,
        "slopes_are_asked",
    ),
    Mutant(
        SECANT,
        "good = rise <= wanted or (rise <= level and area <= wanted and not doubts)",
        "good = rise <= wanted",
        "values are believed beneath their noise",
        RATES,
        "auto",
    ),
    Mutant(
        SECANT,
        "if verdict.kind is Kind.NOISE:",
        "if False:",
        "noise of f is not learned",
        RATES,
        "auto",
    ),
    Mutant(
        SECANT,
        "GROWTH_OF_GUESS = 10.0",
        "GROWTH_OF_GUESS = 5.0",
        "a guessed step grows in two trials",
        EVALUATIONS,
        "guessed",
    ),
    Mutant(
        SECANT,
        "back = math.nan if doubtful else back_to_cubic(width, at.f - f_low, slope_low, end)",
        "back = math.nan",
        "slopes alone shorten a step",
        EVALUATIONS,
        "values",
    ),
    Mutant(
        SECANT,
        "back = math.nan if doubtful else back_to_cubic(",
        "back = back_to_cubic(",
        "values are believed against their slopes",
        EVALUATIONS,
        "contradict",
    ),
    Mutant(
        PAIRS,
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 30_000",
        "ROOM_OF_MATRIX, ROOM_OF_VECTOR = 0, 240_000, 15_000, 30_000",
        "ten pairs for trees",
        EVALUATIONS,
        "trees",
    ),
    Mutant(
        SECANT,
        "return self.longest / size if size > 0 else math.inf",
        "return math.inf",
        "steps of any length",
        PIECES,
        "no_trial_is_longer",
    ),
    Mutant(
        NOISE,
        "MARGIN = 2.0",
        "MARGIN = 0.2",
        "noise is believed",
        RATES,
        "gradient-descent-rounding",
    ),
    Mutant(
        TWO_SIDED,
        "ceiling=self._ceiling(trial.gamma, ceiling, visible)",
        "ceiling=0.0",
        "no memory of the longest step",
        RATES,
        "accelerated-noise",
    ),
    Mutant(
        TWO_SIDED,
        "if not search.below(trial, self.growth_threshold):",
        "if True:",
        "steps never grow",
        BUDGETS,
        "kohn_sham",
    ),
    Mutant(
        TWO_SIDED,
        "return self._back(search, trial, leap)",
        "return trial",
        "a leap stays short",
        LONG_STEPS,
        "finds_its_way",
    ),
    Mutant(
        TWO_SIDED,
        "GALLOP_AFTER = 12",
        "GALLOP_AFTER = 60",
        "steps never gallop",
        LONG_STEPS,
        "finds_its_way",
    ),
    Mutant(
        TWO_SIDED,
        "elif kind is not Kind.NOISE:",
        "if False:",
        "a wrong gradient is noise",
        RATES,
        "wrong_gradient",
    ),
    Mutant(
        TWO_SIDED,
        "return trial.f <= self.f + c * trial.gamma * self.aim.slope + self.noise",
        "return trial.f <= self.f + 0.01 * trial.gamma * self.aim.slope + self.noise",
        "a hundredth of the decrease is enough",
        BUDGETS,
        "kohn_sham",
    ),
    Mutant(
        ACCELERATED, "return trial.f > required", "return False", "no restart", BUDGETS, "kohn_sham"
    ),
    Mutant(
        ACCELERATED,
        "if abs(trial.f - s.f_X) > MARGIN * noise or math.isnan(trial.f):",
        "if True:",
        "restarts by values beneath their noise",
        RATES,
        "accelerated-rounding",
    ),
    Mutant(
        ACCELERATED,
        "STABLE = 4.0 / 3.0",
        "STABLE = 2.0",
        "blind steps a little too long are kept",
        ROUNDING,
        "a_step_beyond",
    ),
    Mutant(
        ACCELERATED,
        "< trial.gamma * s.aim.slope",
        "< -trial.gamma * s.aim.slope",
        "the sign of Algorithm 2's restart",
        BUDGETS,
        "kohn_sham",
    ),
    Mutant(
        MOMENTUM,
        "(2.0 + self.rate * (k + 1))",
        "(9.0 + self.rate * (k + 1))",
        "less momentum",
        PIECES,
        "momentum_is",
    ),
    Mutant(
        WOLFE,
        "return hidden and trial.slope <= (2.0 * c1 - 1.0) * slope",
        "return False",
        "no approximate Wolfe condition",
        RATES,
        "cg",
    ),
    Mutant(
        WOLFE,
        "t = _cubic(low, high) if readable else _secant_step(low, high)",
        "t = 0.5 * (low.t + high.t)",
        "bisection for interpolation",
        BUDGETS,
        "cg",
    ),
    Mutant(
        WOLFE,
        "return verdict.kind not in (Kind.OPEN, Kind.NOISE)",
        "return False",
        "no contradiction",
        HOSTILE,
        "",
    ),
    Mutant(
        NOISE,
        "DOUBTFUL = 0.005",
        "DOUBTFUL = 0.1",
        "doubt: steps of a trust region leave none",
        DOUBTS,
        "is_by_the_last or trust-region",
    ),
    Mutant(
        NOISE,
        "PER_LENGTH = 3.0",
        "PER_LENGTH = 0.0",
        "doubt: long steps leave it",
        DOUBTS,
        "costs_nothing or is_by_the_last",
    ),
    Mutant(
        NOISE,
        "return before or gap > UNROUNDED * level",
        "return True",
        "doubt: rounding leaves it",
        DOUBTS,
        "is_by_the_last",
    ),
    Mutant(
        NOISE,
        "if not max(size, abs(rise)) > CLEAR * level:",
        "if not max(size, abs(rise)) > level:",
        "doubt: steps that cannot be read take it away",
        DOUBTS,
        "is_by_the_last",
    ),
    Mutant(
        DOUBT,
        "LOOK_AGAIN = 0.5",
        "LOOK_AGAIN = 0.0",
        "doubt: chords are not looked at",
        DOUBTS,
        "accelerated",
    ),
    Mutant(
        DOUBT,
        "SUSPECT_NOISE = 1e-3",
        "SUSPECT_NOISE = 1.0",
        "doubt: contradictions that look like noise are believed",
        DOUBTS,
        "looks_like_noise",
    ),
    Mutant(
        DOUBT,
        "SUSPECT_NOISE = 1e-3",
        "SUSPECT_NOISE = 1e-12",
        "doubt: all noise leaves it",
        DOUBTS,
        "rounding_explains",
    ),
    Mutant(
        DOUBT,
        "PROBED_DIRECTIONS = 3",
        "PROBED_DIRECTIONS = 1",
        "doubt: one direction is enough",
        DOUBTS,
        "is_no_success",
    ),
    Mutant(
        DOUBT,
        "UNLIKELY = 4.0",
        "UNLIKELY = 0.5",
        "doubt: unlikely directions accuse",
        DOUBTS,
        "is_measured",
    ),
    Mutant(
        DOUBT,
        "LENGTHS = 3",
        "LENGTHS = 2",
        "doubt: two lengths are enough",
        DOUBTS,
        "noise",
    ),
    Mutant(
        DOUBT,
        "SAME_DERIVATIVE = 1.25",
        "SAME_DERIVATIVE = 100.0",
        "doubt: unlike derivatives agree",
        DOUBTS,
        "noise",
    ),
    Mutant(
        DOUBT,
        "STRAIGHTENED = 0.5",
        "STRAIGHTENED = 9.0",
        "doubt: bends accuse",
        DOUBTS,
        "bend",
    ),
    Mutant(
        DRIVER,
        "state = again._replace(watch=state.watch)",
        "state = again",
        "doubt: is forgotten when a point is restored",
        DOUBTS,
        "restoration",
    ),
    Mutant(
        DRIVER,
        "            return ledger.result(state, ledger.evaluations_reached())\n        if slope:",
        "            return ledger.result(state, reason)\n        if slope:",
        "doubt: nobody is asked at the limit, and success told",
        DOUBTS,
        "limit",
    ),
    Mutant(
        NOISE,
        "ROUNDING = 10.0",
        "ROUNDING = 0.01",
        "values are thought to be exact",
        RATES,
        "accelerated-rounding",
    ),
    Mutant(
        NOISE,
        "return min(ROUNDING * unit, ROUNDING * self.eps * self.magnitude)",
        "return rounding",
        "cancellation leaves no rounding",
        ROUNDING,
        "large_terms_cancelled",
    ),
    Mutant(
        DRIVER,
        "if idle > PATIENCE + self.ledger.nit // 2:",
        "if False:",
        "a driver never gives up",
        PIECES,
        "gives_up",
    ),
    Mutant(
        DRIVER, "PATIENCE = 100 ", "PATIENCE = 1000 ", "a driver gives up late", PIECES, "gives_up"
    ),
    Mutant(
        DRIVER,
        "if idle > PATIENCE + self.ledger.nit // 2:",
        "if idle > PATIENCE:",
        "a driver does not wait for long runs",
        PIECES,
        "gives_up",
    ),
    Mutant(
        DRIVER,
        "Status.ROUNDING_LIMIT if state.watch.blind else Status.STEP_NOT_FOUND,",
        "Status.ROUNDING_LIMIT,",
        "rounding is always the excuse",
        PIECES,
        "gives_up",
    ),
    Mutant(
        LEDGER,
        "IMPROVEMENT = 0.9",
        "IMPROVEMENT = 0.99999",
        "any improvement is progress",
        PIECES,
        "gives_up",
    ),
    Mutant(
        LEDGER,
        "fell = not watch.blind and",
        "fell =",
        "unreadable values are progress",
        PIECES,
        "gives_up",
    ),
    Mutant(
        LEDGER,
        "or f < best.f - noise",
        "or f < best.f + noise",
        "a best point worse by the noise",
        PIECES,
        "best_point",
    ),
    Mutant(
        LEDGER,
        "(f <= best.f + noise and norm < best.norm)",
        "norm < best.norm",
        "the best point is the one of the smallest gradient",
        PIECES,
        "best_point",
    ),
    Mutant(
        STOPPING,
        "target = self.tolerance * p.initial_norm",
        "target = 2 * self.tolerance * p.initial_norm",
        "a tolerance twice as large",
        PIECES,
        "tolerance",
    ),
    Mutant(
        OPERATOR,
        "ASYMMETRY = 1e-6",
        "ASYMMETRY = 1e9",
        "every function has an operator",
        LEARNED,
        "told_at_once",
    ),
    Mutant(
        LEAPS,
        "new.chi < at.chi if blind else enough",
        "True",
        "leaps that F refuses",
        LEARNED,
        "looked_quadratic",
    ),
    Mutant(
        LEAPS,
        "NO_OPERATOR if is_ready(s) else s.operator",
        "NO_OPERATOR",
        "nothing is learned from a refused leap",
        LEARNED,
        "refused_leap",
    ),
    Mutant(
        QUASI_NEWTON,
        "BOLD = 0.7",
        "BOLD = 1.0",
        "proximal steps of the usual length",
        "test_nonsmooth_steps.py",
        "bold_steps_pay",
    ),
    Mutant(
        QUASI_NEWTON,
        "noise = 2.0 * problem.noise.level(at.magnitude)",
        "noise = 2.0 * problem.noise.level(at.total)",
        "f and h cancel without rounding",
        "test_nonsmooth_hostile.py",
        "cancel_keep_their_rounding",
    ),
)


# -- one mutant -------------------------------------------------------------------------------


def written(mutant: Mutant, folder: Path) -> Path:
    """A copy of the package with the mistake in it; the folder to import it from."""
    shutil.copytree(PACKAGE, folder / "stiefel", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "stiefel" / mutant.file
    text = file.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, mutant
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return folder


def killer(mutant: Mutant, own_only: bool = False) -> str | None:
    """The first test that fails on the mutant, or None if it survives."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(mutant, Path(folder))
        own = [str(HERE / mutant.tests), "-k", mutant.words]
        others = [] if own_only else [str(HERE / name) for name in TESTS]
        kernels = mutant.compiled
        return failure(path, own, kernels) or (failure(path, others, kernels) if others else None)


def failure(path: Path, arguments: list[str], compiled: bool = False) -> str | None:
    """The first of these tests that fails with the package in ``path``."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": os.pathsep.join([str(path), str(HERE)])}
    if not compiled:  # mutants are of the text, which kernels must agree with
        environment["STIEFEL_COMPILED"] = "0"
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-p", "no:cacheprovider"]
    command.append("--timeout=120")
    done = subprocess.run(
        [*command, *arguments], cwd=HERE.parent, env=environment, capture_output=True, text=True
    )
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if not failed and "Timeout" not in done.stdout + done.stderr:
        raise RuntimeError(f"no test failed, none passed: {done.stdout} {done.stderr}")
    return failed[0] if failed else "a test that did not end"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=len(MUTANTS))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--own", action="store_true", help="only the tests that should notice")
    parser.add_argument("--only", default="", help="a word of the file or the reason")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if arguments.only in str(m)]
    chosen = random.Random(arguments.seed).sample(chosen, min(arguments.sample, len(chosen)))
    survivors = 0
    for mutant in sorted(chosen, key=MUTANTS.index):
        by = killer(mutant, arguments.own)
        survivors += by is None
        print("SURVIVED" if by is None else "killed  ", mutant, f"[{by}]" if by else "", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
