"""Two processes with DistributedDataParallel: run by test_training_ddp.py as ``RANK FILE``.

Every optimiser trains on each process's half of the data; the ranks must end with the same bits,
near the weights of one process with all the data.
"""

import copy
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from stiefel.torch import SGD, Accelerated, Adam, Muon, orthonormal

MAKE = {
    "SGD": lambda p: SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: Adam(p, lr=0.01),
    "Muon": lambda p: Muon(p, lr=0.02),
    "Accelerated": Accelerated,
}


def network():
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 1))
    orthonormal(model[0], "weight")
    orthonormal(model[2], "weight")
    return model.double()


def train(model, optimizer, x, y):
    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)


def main(rank, file):
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.manual_seed(0)
    x = torch.randn(32, 8, dtype=torch.float64)
    y = torch.tanh(x[:, :1]) - x[:, 1:2]
    for name, make in MAKE.items():
        torch.manual_seed(rank)  # different starts: DDP makes them one
        model = DistributedDataParallel(network())
        alone = copy.deepcopy(model.module)
        train(model, make(model.parameters()), x[rank::2], y[rank::2])
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        both = [torch.empty_like(mine) for _ in range(2)]
        distributed.all_gather(both, mine)
        assert torch.equal(*both), f"{name}: the ranks differ"
        train(alone, make(alone.parameters()), x, y)  # with all data, on each rank
        one = torch.cat([p.detach().flatten() for p in alone.parameters()])
        torch.testing.assert_close(one, mine, atol=1e-6, rtol=0, msg=f"{name}: not the same run")
        assert isinstance(copy.deepcopy(model.module)[0].weight, type(alone[0].weight))
    sharded(rank, x, y)
    distributed.destroy_process_group()


def sharded(rank, x, y):
    """fully_shard: orthonormal parameters stay whole, and a sharded one is refused."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model, refused = network(), network()
    whole = [model[0].weight, model[2].weight]
    fully_shard(model, mesh=mesh, ignored_params=set(whole))
    fully_shard(refused, mesh=mesh)
    try:
        SGD(refused)
    except TypeError as error:
        assert "is sharded; pass ignored_params" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a sharded orthonormal parameter was taken")
    ours = SGD(whole, lr=0.05, momentum=0.9)
    theirs = torch.optim.SGD([p for p in model.parameters() if hasattr(p, "device_mesh")], lr=0.05)
    losses = []
    for _ in range(20):
        model.zero_grad()
        loss = (model(x[rank::2]) - y[rank::2]).square().mean()
        loss.backward()
        for p in whole:  # fully_shard leaves the gradients of ignored parameters to the caller
            distributed.all_reduce(p.grad)
            p.grad /= 2
        ours.step(), theirs.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
