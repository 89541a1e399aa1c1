"""Max-cut with a bound

Which way of cutting the nodes of a graph into two sides cuts the most edges? The semidefinite
relaxation gives every node a unit vector; `max_cut` optimises them on a product of spheres, rounds
them to a cut, and returns a proven upper bound. networkx has a local search, `one_exchange`, which
gives a cut without a bound.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from stiefel.applications.maxcut import max_cut

graph = nx.random_regular_graph(4, 40, seed=1)
weights = nx.to_numpy_array(graph)
cut = max_cut(weights)
local, _ = nx.algorithms.approximation.one_exchange(graph, seed=0)
print(f"networkx's one_exchange cuts {local:g} of {graph.number_of_edges()} edges")
print(f"max_cut cuts {cut.cut_value:g}; no cut has more than {cut.certificate.bound:.2f}")
assert cut.cut_value >= local and cut.cut_value <= cut.certificate.bound

position = nx.kamada_kawai_layout(graph)
sides = np.asarray(cut.sides)
fig, ax = plt.subplots(figsize=(4.4, 3.8), layout="constrained")
uncut = [(a, b) for a, b in graph.edges if sides[a] == sides[b]]
nx.draw_networkx_edges(graph, position, ax=ax, edge_color="0.8")
nx.draw_networkx_edges(graph, position, ax=ax, edgelist=uncut, edge_color="C3", width=2)
nx.draw_networkx_nodes(graph, position, ax=ax, node_size=60, node_color=sides, cmap="coolwarm")
ax.set(title="edges inside a side are red")
ax.axis("off")
