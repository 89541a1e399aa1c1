"""Programs that are interrupted, and that fork, while solves run; used by tests and by the soak.

Each prints a JSON document of what happened.  They run in processes of their own, with libraries
of two threads.
"""

COMMON = """
import json, os, random, signal, sys, threading, time
import numpy, scipy.linalg, threadpoolctl, stiefel
from stiefel.objectives import Brockett

count, seed = (*map(int, sys.argv[1:]), 0)[:2]
libraries = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
numbers = lambda: [lib.get_num_threads() for lib in libraries]
before, rng = numbers(), random.Random(seed)
fun, x0 = Brockett.linear(12, 3), stiefel.random_point(12, 3, seed=seed)
solve = lambda n=30: stiefel.minimize(fun, x0, maxiter=n, rtol=1e-14)
solve()
"""

# Interrupts at random moments of short solves, in half of them a second one a millisecond later.
INTERRUPTS = (
    COMMON
    + """
budget = interrupted = lost = 0
def interrupt(*_):
    global budget
    if budget > 0:
        budget -= 1
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
while interrupted < count:
    budget = wanted = rng.choice([1, 2])
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 6e-3), 1e-3)
            solve()
        except KeyboardInterrupt:
            pass
    except KeyboardInterrupt:  # the second one, while the first was handled
        pass
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            interrupted, budget = interrupted + wanted - budget, 0
            break
        except KeyboardInterrupt:
            pass
    if numbers() != before:
        lost += 1
        for lib, number in zip(libraries, before):
            lib.set_num_threads(number)
print(json.dumps({"interrupted": interrupted, "lost": lost}))
"""
)

# Children forked while another thread of the parent solves; each solves and looks at its threads.
FORKS = (
    COMMON
    + """
stop = threading.Event()
def work():
    while not stop.is_set():
        solve(5)
threading.Thread(target=work, daemon=True).start()
expected, hung, wrong = solve().x.tobytes(), 0, 0
for _ in range(count):
    time.sleep(rng.uniform(0, 2e-3))
    child = os.fork()
    if child == 0:
        good = numbers() == before and solve().x.tobytes() == expected and numbers() == before
        os._exit(0 if good else 1)
    end = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(1e-3)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hung += 1
    else:
        wrong += ended[1] != 0
stop.set()
print(json.dumps({"forks": count, "hung": hung, "wrong": wrong}))
"""
)
