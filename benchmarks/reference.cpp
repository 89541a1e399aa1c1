// Algorithm 1 and L-BFGS for the Brockett cost f(X) = Σ w_j a_i x_ij², in C++ with BLAS and LAPACK.
//
// The same steps as the library, formula by formula, without what a library must do beside them:
// noise, checks, history, other manifolds and dtypes.  It is what `overhead.py` compares with.
//
// Tall matrices are n×k, row-major, which BLAS reads as k×n; small ones are column-major.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <limits>
#include <vector>

#ifndef BLAS
#define BLAS(name) name
#endif
#ifndef INTEGER
#define INTEGER int32_t
#endif
using Integer = INTEGER;

extern "C" {
enum { ColMajor = 102, No = 111, Yes = 112 };
void BLAS(cblas_dgemm)(int, int, int, Integer, Integer, Integer, double, const double *, Integer,
                       const double *, Integer, double, double *, Integer);
void BLAS(cblas_dgemv)(int, int, Integer, Integer, double, const double *, Integer, const double *,
                       Integer, double, double *, Integer);
double BLAS(cblas_ddot)(Integer, const double *, Integer, const double *, Integer);
void BLAS(dgesv_)(const Integer *, const Integer *, double *, const Integer *, Integer *, double *,
                  const Integer *, Integer *);
}

namespace {

using Tall = std::vector<double>;

struct Small {
    Integer rows, columns;
    std::vector<double> entries;
    Small(Integer r, Integer c) : rows(r), columns(c), entries(r * c) {}
    double &operator()(Integer i, Integer j) { return entries[i + j * rows]; }
    double operator()(Integer i, Integer j) const { return entries[i + j * rows]; }
};

double dot(const Tall &a, const Tall &b) {
    return BLAS(cblas_ddot)(a.size(), a.data(), 1, b.data(), 1);
}

double dot(const Small &a, const Small &b) {
    return BLAS(cblas_ddot)(a.entries.size(), a.entries.data(), 1, b.entries.data(), 1);
}

double trace(const Small &a) {
    double sum = 0;
    for (Integer i = 0; i < a.rows; i++) sum += a(i, i);
    return sum;
}

// α op(A) op(B) + β C
void multiply(double alpha, const Small &A, bool At, const Small &B, bool Bt, double beta, Small &C) {
    Integer inner = At ? A.rows : A.columns;
    BLAS(cblas_dgemm)(ColMajor, At ? Yes : No, Bt ? Yes : No, C.rows, C.columns, inner, alpha,
                      A.entries.data(), A.rows, B.entries.data(), B.rows, beta, C.entries.data(), C.rows);
}

Small product(const Small &A, const Small &B, bool At = false, bool Bt = false) {
    Small C(At ? A.columns : A.rows, Bt ? B.rows : B.columns);
    multiply(1, A, At, B, Bt, 0, C);
    return C;
}

void solve(Small &A, Small &B) {
    Integer info;
    std::vector<Integer> pivots(A.rows);
    BLAS(dgesv_)(&A.rows, &B.columns, A.entries.data(), &A.rows, pivots.data(), B.entries.data(), &B.rows, &info);
}

struct Grams {
    Small a, b, c;  // XᵀX, XᵀW, WᵀW
};

struct Coefficients {
    Small P, Q;  // of X P + W Q
};

struct Brockett {
    Integer n, k;
    std::vector<double> table;  // 2 w_j a_i
    double value(const Tall &X) const {
        double f = 0;
        for (size_t i = 0; i < X.size(); i++) f += table[i] * X[i] * X[i];
        return 0.5 * f;
    }
    double value_and_gradient(const Tall &X, Tall &E) const {
        E.resize(X.size());
        double f = 0;
        for (size_t i = 0; i < X.size(); i++) {
            E[i] = table[i] * X[i];
            f += E[i] * X[i];
        }
        return 0.5 * f;
    }
};

struct Manifold {
    Integer n, k;

    Small gram(const Tall &A, const Tall &B) const {
        Small C(k, k);
        BLAS(cblas_dgemm)(ColMajor, No, Yes, k, k, n, 1, A.data(), k, B.data(), k, 0, C.entries.data(), k);
        return C;
    }
    // out = α A C + β out
    void add(double alpha, const Tall &A, const Small &C, double beta, Tall &out) const {
        out.resize(A.size());
        BLAS(cblas_dgemm)(ColMajor, Yes, No, k, n, k, alpha, C.entries.data(), k, A.data(), k, beta, out.data(), k);
    }
    void combine(const Tall &X, const Tall &W, const Coefficients &C, Tall &out) const {
        add(1, X, C.P, 0, out);
        add(1, W, C.Q, 1, out);
    }
    Grams grams(const Tall &X, const Tall &W) const { return {gram(X, X), gram(X, W), gram(W, W)}; }

    // E becomes the cotangent of a Euclidean gradient; returns its rotation part
    Small project(const Tall &X, Tall &E) const {
        Small m = gram(X, E), turn(k, k), normal(k, k);
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                normal(i, j) = 0.5 * (m(i, j) + m(j, i));
                turn(i, j) = 0.5 * (m(i, j) - m(j, i));
            }
        add(-1, X, normal, 1, E);
        return turn;
    }
    // I − ZᵀU of the Cayley transform
    Small system(const Grams &g, double t) const {
        Small A(2 * k, 2 * k);
        double h = 0.5 * t;
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                A(i, j) = (i == j) - h * g.b(i, j);
                A(i, k + j) = -g.a(i, j);
                A(k + i, j) = h * h * g.c(i, j);
                A(k + i, k + j) = (i == j) + h * g.b(j, i);
            }
        return A;
    }
    Coefficients orthonormalised(const Grams &g, const Coefficients &C) const {
        Small u = product(g.a, C.P), v = product(g.b, C.P, true), E(k, k);
        multiply(1, g.b, false, C.Q, false, 1, u);
        multiply(1, g.c, false, C.Q, false, 1, v);
        multiply(-0.5, C.P, true, u, false, 0, E);
        multiply(-0.5, C.Q, true, v, false, 1, E);
        for (Integer i = 0; i < k; i++) E(i, i) += 1.5;
        return {product(C.P, E), product(C.Q, E)};
    }
    Coefficients cayley(const Grams &g, double t) const {
        Small A = system(g, t), S(2 * k, k), P(k, k), Q(k, k);
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                S(i, j) = g.a(i, j);
                S(k + i, j) = -0.5 * t * g.b(j, i);
            }
        solve(A, S);
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                P(i, j) = (i == j) + 2 * S(k + i, j);
                Q(i, j) = t * S(i, j);
            }
        return {P, Q};
    }
    void extrapolate(const Tall &X, const Tall &Y, double tau, Tall &out) const {
        Grams g = grams(X, Y);
        Small left(k, k), M(k, k), s(k, k);
        for (Integer j = 0; j < k; j++) {
            for (Integer i = 0; i < k; i++) left(i, j) = (i == j) + g.b(i, j);
            M(j, j) = 2;
        }
        solve(left, M);
        Small mM = product(g.b, M);
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) s(i, j) = 0.5 * (mM(i, j) + mM(j, i));
        Grams lifted{g.a, mM, product(M, product(g.c, M), true)};
        multiply(-1, g.a, false, s, false, 1, lifted.b);
        multiply(-1, mM, true, s, false, 1, lifted.c);
        multiply(-1, s, false, lifted.b, false, 1, lifted.c);
        Coefficients C = cayley(lifted, tau);
        multiply(-1, s, false, C.Q, false, 1, C.P);
        C.Q = product(M, C.Q);
        combine(X, Y, orthonormalised(g, C), out);
    }
};

// Algorithm 1 with the parameters of Table 1, but for a first step that is not a thousand times too long.
void accelerated(const Brockett &f, const Manifold &St, Tall &X, int iterations, double *trace_of_f,
                 int64_t *calls) {
    const double growth = 1.7, longer_if = 0.9, sufficient = 0.5, least = 0.01;
    Tall Y = X, G, trial, held, next;
    double f_X = f.value(X), gamma = 1e-4;
    int k = 0;
    for (int it = 0; it < iterations; it++) {
        double f_Y = trace_of_f[it] = f.value_and_gradient(Y, G);
        calls[1]++;
        St.project(Y, G);
        Grams g = St.grams(Y, G);
        double slope = trace(g.c) + dot(g.b, g.b);
        auto at = [&](double step, Tall &out) {
            St.combine(Y, G, St.orthonormalised(g, St.cayley(g, -step)), out);
            calls[0]++;
            return f.value(out);
        };
        double f_new = at(gamma, trial);
        while (f_new < f_Y - longer_if * gamma * slope) {
            double f_longer = at(gamma * growth, held);
            if (f_longer > f_Y - sufficient * gamma * growth * slope) break;
            gamma *= growth;
            f_new = f_longer;
            std::swap(trial, held);
        }
        while (f_new > f_Y - sufficient * gamma * slope) f_new = at(gamma /= growth, trial);
        if (k > 0 && f_new > f_X - least * gamma * slope) {
            Y = X;
            k = 0;
        } else {
            double alpha = k / (k + 3.0);
            if (alpha > 0) St.extrapolate(X, trial, 1 + alpha, next);
            else next = trial;
            std::swap(X, trial);
            std::swap(Y, next);
            f_X = f_new;
            k++;
        }
    }
}

// L-BFGS in the metric φ(N + XA) = N D + ω X(AD + DA)/2, as `auto` uses it once it is learned.
struct Lbfgs {
    const Brockett &f;
    const Manifold &St;
    Integer memory;
    Small D;
    double omega;

    Integer n = St.n, k = St.k, size = n * k, rows = memory + 1, written = 0;
    Tall S = Tall(rows * size), Y = Tall(rows * size);
    std::vector<Integer> used = {};
    Small inverse{rows, rows};
    std::vector<double> diagonal = std::vector<double>(rows);

    void raise(const Tall &X, const Tall &W, Tall &out) const {
        Small m = St.gram(X, W), A(k, k);
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) A(i, j) = 0.25 * omega * (m(i, j) - m(j, i));
        Small C = product(A, D);
        multiply(1, D, false, A, false, 1, C);
        multiply(-1, m, false, D, false, 1, C);
        St.combine(W, X, {D, C}, out);
    }
    std::vector<double> dots(const Tall &block, const Tall &v) const {
        std::vector<double> out(rows);
        BLAS(cblas_dgemv)(ColMajor, Yes, size, written, 1, block.data(), size, v.data(), 1, 0, out.data(), 1);
        return out;
    }
    void add_rows(const Tall &block, const std::vector<double> &weights, double beta, Tall &v) const {
        BLAS(cblas_dgemv)(ColMajor, No, size, written, 1, block.data(), size, weights.data(), 1, beta, v.data(), 1);
    }
    void remember(const Tall &s, const Tall &y, double sy) {
        Integer row = written;
        if (written < rows) written++;
        else for (row = 0; std::find(used.begin(), used.end(), row) != used.end();) row++;
        std::copy(s.begin(), s.end(), S.begin() + row * size);
        std::copy(y.begin(), y.end(), Y.begin() + row * size);
        used.push_back(row);
        if (Integer(used.size()) == rows) {
            Integer gone = used.front();
            used.erase(used.begin());
            for (Integer i = 0; i < rows; i++) inverse(gone, i) = inverse(i, gone) = 0;
            diagonal[gone] = 0;
        }
        std::vector<double> products = dots(S, y), column(rows);
        for (Integer j = 0; j < written; j++)
            for (Integer i = 0; i < rows; i++) column[i] -= inverse(i, j) * products[j] / sy;
        for (Integer i = 0; i < rows; i++) inverse(i, row) = column[i];
        inverse(row, row) = 1 / sy;
        diagonal[row] = sy;
    }
    void direction(const Tall &X, const Tall &G, double gamma, Tall &q, Tall &T) const {
        std::vector<double> g = dots(S, G), a(rows), c(rows);
        for (Integer j = 0; j < rows; j++)
            for (Integer i = 0; i < rows; i++) a[i] -= inverse(i, j) * g[j];
        q = G;
        add_rows(Y, a, 1, q);
        raise(X, q, T);
        std::vector<double> r = dots(Y, T);
        for (Integer j = 0; j < rows; j++)
            for (Integer i = 0; i < rows; i++) c[j] += (gamma * r[i] + diagonal[i] * a[i]) * inverse(i, j);
        add_rows(S, c, -gamma, T);
    }

    // How far before its end a cubic is least, which rises by `rise` and has these slopes.
    static double back_to_cubic(double width, double rise, double start, double end) {
        double theta = start + end - 3 * rise / width;
        double scale = std::max({std::abs(theta), std::abs(start), std::abs(end)});
        double radicand = (theta / scale) * (theta / scale) - (start / scale) * (end / scale);
        double gamma = scale * std::sqrt(radicand);  // NaN where there is no minimum
        return width * (end + gamma - theta) / (end - start + 2 * gamma);
    }

    void run(Tall &X, int iterations, double *trace_of_f, int64_t *calls) {
        const double c1 = 1e-4, c2 = 0.9, longest = 3.0;
        Tall G, T, q, X_new, G_new, s, y;
        double value = f.value_and_gradient(X, G), gamma = 0;
        Small turn = St.project(X, G);
        raise(X, G, T);
        double first = 0.1 * std::sqrt(k / dot(T, T));
        for (double &v : T) v *= -first;
        for (int it = 0; it < iterations; it++) {
            trace_of_f[it] = value;
            double slope = dot(G, T);
            Grams g = St.grams(X, T);
            Small M(k, k);  // the direction is the tangent nearest to T, that of W = T − XM
            for (Integer j = 0; j < k; j++)
                for (Integer i = 0; i < k; i++) M(i, j) = 0.75 * g.b(i, j) + 0.25 * g.b(j, i);
            multiply(-1, M, true, g.b, false, 1, g.c);
            multiply(-1, g.a, false, M, false, 1, g.b);
            multiply(-1, g.b, true, M, false, 1, g.c);
            double limit = longest / std::sqrt(trace(g.c) + 3 * dot(g.b, g.b));
            double t = std::min(1.0, limit), low = 0, high = std::numeric_limits<double>::infinity();
            double f_new, end, f_low = value, slope_low = slope;
            Small turn_new(k, k), change(k, k);
            for (;;) {
                Coefficients C = St.orthonormalised(g, St.cayley(g, t));
                multiply(-1, M, false, C.Q, false, 1, C.P);
                St.combine(X, T, C, X_new);
                f_new = f.value_and_gradient(X_new, G_new);
                calls[0]++, calls[1]++;
                turn_new = St.project(X_new, G_new);
                secant(X, T, g, M, t, G, turn, G_new, s, y);
                end = dot(G_new, s) / t;
                double along = end > slope ? -slope / (end - slope) : 1e300;
                if (f_new <= value + c1 * t * slope) {
                    if (end >= c2 * slope || t >= 0.99 * limit) break;
                    low = t, f_low = f_new, slope_low = end;
                    t = high < 1e300 ? 0.5 * (low + high)
                                     : std::min(t * std::min(std::max(along, 1.5), 5.0), limit);
                } else {
                    double width = t - low, back = back_to_cubic(width, f_new - f_low, slope_low, end);
                    if (!std::isfinite(back)) back = t - t * along;
                    high = t;
                    t = low + width * std::min(std::max(1 - back / width, 0.1), 0.7);
                }
            }
            double sy = t * (end - slope);
            remember(s, y, sy);
            Small yy = St.gram(y, y);
            for (size_t i = 0; i < change.entries.size(); i++)
                change.entries[i] = turn_new.entries[i] - turn.entries[i];
            double now = sy / (dot(D, yy) - dot(change, product(change, D)) + omega * dot(change, change));
            gamma = gamma > 0 ? std::sqrt(gamma * now) : now;  // one step shows one curvature of many
            std::swap(X, X_new);
            std::swap(G, G_new);
            turn = turn_new;
            value = f_new;
            direction(X, G, gamma, q, T);
        }
    }
    // s = t Q(t)φ(W) and y = G⁺ − Q(t)G
    void secant(const Tall &X, const Tall &T, const Grams &g, const Small &M, double t, const Tall &G,
                const Small &turn, const Tall &G_new, Tall &s, Tall &y) const {
        Small A = St.system(g, t), R(2 * k, 2 * k), WG = St.gram(T, G);
        Small ab = product(g.a, g.b), bb = product(g.b, g.b, true);
        multiply(-1, M, true, turn, false, 1, WG);
        double h = 0.5 * t;
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                R(i, j) = g.b(i, j) + ab(i, j);
                R(i, k + j) = turn(i, j);
                R(k + i, j) = -h * (g.c(i, j) + bb(i, j));
                R(k + i, k + j) = -h * WG(i, j);
            }
        solve(A, R);
        Coefficients step{Small(k, k), Small(k, k)}, moved{Small(k, k), Small(k, k)};
        for (Integer j = 0; j < k; j++)
            for (Integer i = 0; i < k; i++) {
                step.P(i, j) = t * (2 * R(k + i, j) + g.b(i, j));
                step.Q(i, j) = t * ((i == j) + t * R(i, j));
                moved.P(i, j) = 2 * R(k + i, k + j);
                moved.Q(i, j) = t * R(i, k + j);
            }
        multiply(-1, M, false, step.Q, false, 1, step.P);
        multiply(-1, M, false, moved.Q, false, 1, moved.P);
        St.combine(X, T, step, s);
        y.resize(size);
        for (Integer i = 0; i < size; i++) y[i] = G_new[i] - G[i];
        St.add(-1, X, moved.P, 1, y);
        St.add(-1, T, moved.Q, 1, y);
    }
};

double cpu() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

Brockett objective(Integer n, Integer k, const double *a, const double *w) {
    Brockett f{n, k, std::vector<double>(n * k)};
    for (Integer i = 0; i < n; i++)
        for (Integer j = 0; j < k; j++) f.table[i * k + j] = 2 * a[i] * w[j];
    return f;
}

}  // namespace

// Both return CPU seconds without those of f, which are measured after the run by as many calls.
extern "C" {

double without_function(const Brockett &f, const Tall &X, double seconds, const int64_t *calls) {
    Tall E;
    volatile double sum = 0;
    double start = cpu();
    for (int64_t i = 0; i < calls[1]; i++) sum = sum + f.value_and_gradient(X, E);
    for (int64_t i = 0; i < calls[0] - calls[2]; i++) sum = sum + f.value(X);
    return seconds - (cpu() - start);
}

double run_accelerated(int n, int k, const double *a, const double *w, double *x, int iterations,
                       double *trace_of_f) {
    Brockett f = objective(n, k, a, w);
    Manifold St{n, k};
    Tall X(x, x + n * k);
    int64_t calls[3] = {0, 0, 0};  // values, pairs, pairs counted among the values
    double start = cpu();
    accelerated(f, St, X, iterations, trace_of_f, calls);
    double seconds = cpu() - start;
    std::copy(X.begin(), X.end(), x);
    return without_function(f, X, seconds, calls);
}

double run_lbfgs(int n, int k, const double *a, const double *w, double *x, int iterations, int memory,
                 const double *D, double omega, double *trace_of_f) {
    Brockett f = objective(n, k, a, w);
    Manifold St{n, k};
    Tall X(x, x + n * k);
    Small columns(k, k);
    std::copy(D, D + k * k, columns.entries.begin());
    Lbfgs solver{f, St, memory, columns, omega};
    int64_t calls[3] = {0, 0, 0};
    double start = cpu();
    solver.run(X, iterations, trace_of_f, calls);
    double seconds = cpu() - start;
    std::copy(X.begin(), X.end(), x);
    calls[2] = calls[0];
    return without_function(f, X, seconds, calls);
}
}
