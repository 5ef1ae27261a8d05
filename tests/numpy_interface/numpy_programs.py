"""Programs as people write them with NumPy, each of a parameter and of ``np``: NumPy's module, or tape's."""

# ruff: noqa: ANN001, ANN201, ANN202, ANN204, E741, N803, N806, RUF005, RUF059, SIM300

from __future__ import annotations

from typing import Any


def heat_with_ghost_cells(np, k):
    n = 12
    u = np.zeros(n + 2)
    u[4:7] = 1.0
    for _ in range(6):
        u[0], u[-1] = u[1], u[-2]
        un = u.copy()
        u[1:-1] = un[1:-1] + k * (un[2:] - 2 * un[1:-1] + un[:-2])
    return np.sum(u[1:-1] ** 2)


def wave(np, c):
    x = np.linspace(0.0, 1.0, 20)
    u_old = np.exp(-50 * (x - 0.5) ** 2)
    u = u_old.copy()
    u_new = np.zeros_like(u)
    for _ in range(10):
        u_new[1:-1] = 2 * u[1:-1] - u_old[1:-1] + c**2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u_new[0] = u_new[-1] = 0.0
        u_old, u, u_new = u, u_new, u_old
    return np.max(u) + np.sum(u[:4])


def burgers(np, nu):
    n = 16
    dx = 2 * np.pi / n
    x = np.arange(n) * dx
    u = np.sin(x) + 1.5
    for i in range(8):
        left, right = np.roll(u, 1), np.roll(u, -1)
        u = u - 0.02 * (u * (u - left) / dx - nu * (right - 2 * u + left) / dx**2)
        if i == 3:
            assert (u.shape, len(u)) == ((n,), n)
    return np.mean(u**2) + u[3]


class _Oscillator:
    def __init__(self, np, stiffness):
        self.np, self.stiffness = np, stiffness
        self.state = np.array([1.0, 0.0])
        self.history = np.zeros((21, 2))
        self.history[0] = self.state

    def step(self, dt):
        a = self.np.array([self.state[1], -self.stiffness * self.state[0]])
        middle = self.state + 0.5 * dt * a
        self.state = self.state + dt * self.np.array([middle[1], -self.stiffness * middle[0]])

    def run(self, steps):
        for i in range(steps):
            self.step(0.05)
            self.history[i + 1, :] = self.state
        return self.history


def class_with_state(np, k):
    history = _Oscillator(np, k).run(20)
    return np.trapezoid(history[:, 0] ** 2, dx=0.05) + history[-1, 1]


def generator_of_steps(np, r):
    def steps(x, count):
        for n in range(count):
            x = x + 0.1 * r * x * (1 - x)
            yield n * 0.1, x

    values = np.empty(15)
    for i, (_, x) in enumerate(steps(np.full(3, 0.1) * np.array([1.0, 2.0, 3.0]), 15)):
        values[i] = x.sum()
    return values[-1] + np.mean(np.diff(values))


def jacobi(np, source):
    n = 8
    p, b = np.zeros((n, n)), np.zeros((n, n))
    b[n // 2, n // 2] = source
    error, count = 1.0, 0
    while error > 1e-4 and count < 60:
        old = p.copy()
        p[1:-1, 1:-1] = 0.25 * (old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1] - b[1:-1, 1:-1])
        p[:, 0] = p[:, 1]
        error = float(np.abs(p - old).max())
        count += 1
    return np.sum(p**2)


def gauss_seidel(np, source):
    n = 6
    p = np.zeros(n)
    for _ in range(40):
        largest = 0.0
        for i in range(1, n - 1):
            before = p[i]
            p[i] = 0.5 * (p[i - 1] + p[i + 1] + source / n**2)
            largest = max(largest, float(abs(p[i] - before)))
        if largest < 1e-3:
            break
    return np.dot(p, p)


def particles_in_cells(np, charge):
    cells, count = 8, 20
    rng = np.random.default_rng(3)
    x, v = rng.uniform(0, cells, count), rng.normal(size=count)
    for _ in range(4):
        i = np.floor(x).astype(int) % cells
        w = x - np.floor(x)
        rho = np.zeros(cells)
        np.add.at(rho, i, charge * (1 - w))
        np.add.at(rho, (i + 1) % cells, charge * w)
        rho = rho - rho.mean()
        field = 0.5 * (np.roll(rho, 1) - np.roll(rho, -1))
        v = v + 0.1 * (field[i] * (1 - w) + field[(i + 1) % cells] * w)
        x = (x + 0.1 * v) % cells
    return np.sum(v**2) + np.bincount(i, weights=v, minlength=cells)[2]


def shallow_water(np, g):
    n = 10
    h, uh = np.ones((n, n)), np.zeros((n, n))
    h[3:5, 3:5] += 0.2
    flux, momentum = np.zeros((n + 1, n)), np.zeros((n + 1, n))
    for _ in range(5):
        flux[1:-1, :] = 0.5 * (uh[1:] + uh[:-1]) - 0.5 * (h[1:] - h[:-1])
        momentum[1:-1, :] = 0.5 * (uh[1:] ** 2 / h[1:] + uh[:-1] ** 2 / h[:-1]) + 0.25 * g * (h[1:] ** 2 + h[:-1] ** 2)
        momentum[0], momentum[-1] = 0.5 * g * h[0] ** 2, 0.5 * g * h[-1] ** 2
        h -= 0.05 * (flux[1:] - flux[:-1])
        uh -= 0.05 * (momentum[1:] - momentum[:-1])
    return np.sum(h**2) + np.sum(uh[2])


def bodies(np, G):
    m = np.array([1.0, 0.5, 0.1])
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    v = np.array([[0.0, 0.0], [0.0, 1.0], [0.7, 0.0]])
    for _ in range(8):
        a = np.zeros_like(x)
        for i in range(3):
            for j in range(3):
                if i != j:
                    r = x[j] - x[i]
                    a[i] += G * m[j] * r / np.linalg.norm(r) ** 3
        v += 0.02 * a
        x += 0.02 * v
    return np.linalg.norm(x[1]) + 0.5 * np.sum(m[:, None] * v**2)


def lattice_boltzmann(np, omega):
    e = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]])
    w = np.array([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    f = np.ones((5, 6, 6)) * w[:, None, None]
    f[1, 2, 3] += 0.1
    feq = np.empty_like(f)
    for _ in range(4):
        for i in range(5):
            f[i] = np.roll(f[i], (int(e[i, 0]), int(e[i, 1])), axis=(0, 1))
        rho = f.sum(axis=0)
        u = np.einsum("ia,ixy->axy", e, f) / rho
        for i in range(5):
            feq[i] = w[i] * rho * (1 + 3 * (e[i, 0] * u[0] + e[i, 1] * u[1]))
        f = f - omega * (f - feq)
    return np.sum(f[1] ** 2) + np.std(f[2])


def cavity(np, nu):
    n = 8
    u, v, p = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    dx, dt = 1.0 / (n - 1), 0.01
    b = np.zeros_like(p)
    u[-1, :] = 1.0
    for _ in range(3):
        b[1:-1, 1:-1] = ((u[1:-1, 2:] - u[1:-1, :-2]) + (v[2:, 1:-1] - v[:-2, 1:-1])) / (2 * dx * dt)
        for _ in range(4):
            pn = p.copy()
            p[1:-1, 1:-1] = (
                0.25 * (pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]) - 0.25 * dx**2 * b[1:-1, 1:-1]
            )
            p[:, -1], p[0, :], p[:, 0], p[-1, :] = p[:, -2], p[1, :], p[:, 1], 0
        un, vn = u.copy(), v.copy()
        for q, old, grad in ((u, un, p[1:-1, 2:] - p[1:-1, :-2]), (v, vn, p[2:, 1:-1] - p[:-2, 1:-1])):
            q[1:-1, 1:-1] = (
                old[1:-1, 1:-1] - dt / (2 * dx) * grad
                + nu * dt / dx**2 * (old[1:-1, 2:] + old[1:-1, :-2] - 2 * old[1:-1, 1:-1])
                + nu * dt / dx**2 * (old[2:, 1:-1] + old[:-2, 1:-1] - 2 * old[1:-1, 1:-1])
            )  # fmt: skip
        u[-1, :], v[0, :] = 1, 0
    return np.sum(u**2) + np.sum(v**2)


def logistic_regression(np, rate):
    rng = np.random.default_rng(0)
    X = np.hstack([np.ones((20, 1)), rng.normal(size=(20, 2))])
    y = (X[:, 1] + 0.5 * X[:, 2] > 0).astype(float)
    w = np.zeros(3)
    for _ in range(10):
        p = 1 / (1 + np.exp(-X @ w))
        w -= rate * X.T @ (p - y) / len(y)
    p = np.clip(1 / (1 + np.exp(-np.dot(X, w))), 1e-9, 1 - 1e-9)
    return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))


def kalman_filter(np, q):
    F, H = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    Q, R = q * np.eye(2), np.array([[0.5]])
    x, P = np.zeros((2, 1)), np.identity(2)
    likelihood = 0.0
    for z in [0.1, 0.25, 0.2, 0.5]:
        x, P = F @ x, F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        y = np.array([[z]]) - H @ x
        likelihood += -0.5 * (np.log(np.linalg.det(S)) + (y.T @ np.linalg.solve(S, y))[0, 0])
        x, P = x + K @ y, (np.eye(2) - K @ H) @ P
    return likelihood + np.trace(P)


def springs(np, k):
    x = np.array([[0.0, 0.0], [1.1, 0.0], [2.0, 0.3], [3.2, 0.0]])
    edges = [(0, 1), (1, 2), (2, 3), (0, 2)]
    energy = 0
    forces = np.zeros(x.shape)
    for a, b in edges:
        d = x[b] - x[a]
        length = np.sqrt(np.sum(d**2))
        f = k * (length - 1.0) * d / length
        forces[a] += f
        forces[b] -= f
        energy += 0.5 * k * (length - 1.0) ** 2
    x = x + 0.05 * forces
    return energy + np.sum(np.linalg.norm(x, axis=1)) + np.abs(forces).max()


def finite_elements(np, E):
    n = 5
    K, f = np.zeros((n, n)), np.zeros(n)
    for e in range(n - 1):
        nodes = [e, e + 1]
        K[np.ix_(nodes, nodes)] += E * (e + 1) * np.array([[1.0, -1.0], [-1.0, 1.0]])
        f[nodes] += 0.5
    free = np.arange(1, n)
    u = np.zeros(n)
    u[free] = np.linalg.solve(K[np.ix_(free, free)], f[free])
    return u @ f + u[-1] ** 2


def thomas(np, r):
    n = 7
    a, b, c, d = -r * np.ones(n), (1 + 2 * r) * np.ones(n), -r * np.ones(n), np.linspace(1, 2, n)
    cp, dp, x = np.zeros(n), np.zeros(n), np.zeros(n)
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return np.sum(x * x)


def crank_nicolson(np, alpha):
    n = 8
    L = np.diag(-2.0 * np.ones(n)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    A, B = np.eye(n) - 0.5 * alpha * L, np.eye(n) + 0.5 * alpha * L
    u = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    for _ in range(4):
        u = np.linalg.solve(A, B.dot(u))
    return np.linalg.norm(u)


def rays(np, radius):
    xs = np.linspace(-1, 1, 5)
    X, Y = np.meshgrid(xs, xs)
    image = np.zeros(X.shape + (3,))
    inside = X**2 + Y**2 < radius**2
    Z = np.sqrt(np.where(inside, radius**2 - X**2 - Y**2, 1.0))
    normal = np.stack([X, Y, Z], axis=-1) / np.sqrt(X**2 + Y**2 + Z**2)[..., np.newaxis]
    shade = np.maximum(normal @ np.array([0.3, 0.5, 0.8]), 0.0)
    image[inside] = shade[inside, None] * np.array([1.0, 0.5, 0.2])
    return image.sum() + image[2, 2, 0]


def monte_carlo(np, sigma):
    rng = np.random.default_rng(12)
    paths = np.full((30,), 1.0)
    for _ in range(5):
        paths = paths * np.exp(-0.5 * sigma**2 * 0.2 + sigma * np.sqrt(0.2) * rng.standard_normal(30))
    return np.mean(np.maximum(paths - 1.0, 0.0)) + np.percentile(paths, 40)


def verlet_list(np, epsilon):
    x = np.array([[0.0, 0.0], [1.1, 0.0], [0.0, 1.2], [5.0, 5.0], [1.2, 1.1]])
    v = np.zeros_like(x)
    neighbours = [[j for j in range(5) if j != i and np.linalg.norm(x[i] - x[j]) < 2] for i in range(5)]
    for _ in range(3):
        F = np.zeros((5, 2))
        for i, near in enumerate(neighbours):
            if not near:
                continue
            r = x[i] - x[near]
            d2 = np.sum(r * r, axis=1)
            F[i] = np.sum((24 * epsilon * (2 / d2**7 - 1 / d2**4))[:, None] * r, axis=0)
        v += 0.01 * F
        x += 0.01 * v
    return np.sum(v**2) + x[0, 0]


def ising(np, beta):
    rng = np.random.default_rng(5)
    spins = np.where(rng.random((6, 6)) < 0.5, 1.0, -1.0)
    checker = np.add.outer(np.arange(6), np.arange(6)) % 2 == 0
    total = 0.0
    for mask in (checker, ~checker):
        field = sum(np.roll(spins, s, axis) for s in (1, -1) for axis in (0, 1))
        spins[mask] = np.tanh(beta * field)[mask]
        total += np.sum(spins[mask] * field[mask])
    return total / spins.size


def seir(np, beta):
    def rates(y):
        S, E, I, R = y
        return np.array([-beta * S * I, beta * S * I - 0.2 * E, 0.2 * E - 0.1 * I, 0.1 * I])

    y = np.array([0.99, 0.01, 0, 0])
    result = [y]
    for _ in range(10):
        k1 = rates(y)
        k2 = rates(y + 0.5 * k1)
        y = y + k2
        result.append(y)
    table = np.array(result)
    return table[:, 2].max() + table[-1, 3]


def horner(np, x):
    value, powers = 0.0, np.zeros(4)
    for i, c in enumerate([2.0, -1.0, 0.5, 3.0]):
        value = value * x + c
        powers[i] = x**i
    return value + np.polyval([1.0, 2.0], x) + np.dot(powers, np.arange(4))


def swaps(np, x):
    u = np.array([x, 2.0, 3 * x, 1.0])
    for i in range(3):
        if u[i] > u[i + 1]:
            held = u[i]
            u[i] = u[i + 1]
            u[i + 1] = held
    u[0], u[1] = u[1], u[0]
    order = np.argsort(u)
    return u[order] @ np.arange(1, 5) + np.r_[0.0, u[1:3], x].sum() + np.c_[u, u][:, 0].mean()


PROGRAMS: dict[Any, float] = {
    heat_with_ghost_cells: 0.2, wave: 0.4, burgers: 0.1, class_with_state: 2.0, generator_of_steps: 1.3, jacobi: 5.0,
    gauss_seidel: 2.0, particles_in_cells: 0.7, shallow_water: 1.0, bodies: 1.0, lattice_boltzmann: 0.9, cavity: 0.1,
    logistic_regression: 0.5, kalman_filter: 0.1, springs: 2.0, finite_elements: 3.0, thomas: 0.7, crank_nicolson: 0.3,
    rays: 0.9, monte_carlo: 0.3, verlet_list: 0.1, ising: 0.4, seir: 0.5, horner: 1.2, swaps: 2.5,
}  # fmt: skip
"""The programs and the parameter that each is run at."""
