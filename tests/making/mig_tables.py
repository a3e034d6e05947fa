"""MIG profiles of GPUs, as NVIDIA's MIG user guide and ``nvidia-smi mig -lgip -lgipp`` list them.

The guide has names, media engines, copy engines, numbers of instances and placements; memory (in MiB, as NVML tells it)
and multiprocessors are those that the drivers list. Ids are the GPU's own: 19 is ``1g`` on GPUs of eight memory slices,
14 on an A30.
"""

from __future__ import annotations

from node.inventory.facts import MigProfile

Row = tuple[int, int, str, int, int, int, int, int, int, int, int, int, tuple[int, ...]]
"""Constant, id, name, slices, instances, MiB, multiprocessors, copy engines, decoders, JPEG, OFA, size, starts."""

SEVEN = (0, 1, 2, 3, 4, 5, 6)


def _table(*rows: Row) -> tuple[MigProfile, ...]:
    return tuple(
        MigProfile(
            index=index,
            profile_id=profile_id,
            slices=slices,
            instances=instances,
            multiprocessors=multiprocessors,
            copy_engines=copy_engines,
            decoders=decoders,
            encoders=0,
            jpeg_engines=jpeg,
            ofa_engines=ofa,
            memory_mib=mib,
            size=size,
            starts=starts,
            name=f"MIG {name}",
        )
        for (
            index,
            profile_id,
            name,
            slices,
            instances,
            mib,
            multiprocessors,
            copy_engines,
            decoders,
            jpeg,
            ofa,
            size,
            starts,
        ) in sorted(rows)
    )


A100_40GB = _table(
    (0, 19, "1g.5gb", 1, 7, 4864, 14, 1, 0, 0, 0, 1, SEVEN),
    (7, 20, "1g.5gb+me", 1, 1, 4864, 14, 1, 1, 1, 1, 1, SEVEN),
    (9, 15, "1g.10gb", 1, 4, 9856, 14, 1, 1, 0, 0, 2, (0, 2, 4, 6)),
    (1, 14, "2g.10gb", 2, 3, 9856, 28, 2, 1, 0, 0, 2, (0, 2, 4)),
    (2, 9, "3g.20gb", 3, 2, 19968, 42, 3, 2, 0, 0, 4, (0, 4)),
    (3, 5, "4g.20gb", 4, 1, 19968, 56, 4, 2, 0, 0, 4, (0,)),
    (4, 0, "7g.40gb", 7, 1, 40192, 98, 7, 5, 1, 1, 8, (0,)),
)
A100_80GB = _table(
    (0, 19, "1g.10gb", 1, 7, 9728, 14, 1, 0, 0, 0, 1, SEVEN),
    (7, 20, "1g.10gb+me", 1, 1, 9728, 14, 1, 1, 1, 1, 1, SEVEN),
    (9, 15, "1g.20gb", 1, 4, 19968, 14, 1, 1, 0, 0, 2, (0, 2, 4, 6)),
    (1, 14, "2g.20gb", 2, 3, 19968, 28, 2, 1, 0, 0, 2, (0, 2, 4)),
    (2, 9, "3g.40gb", 3, 2, 40448, 42, 3, 2, 0, 0, 4, (0, 4)),
    (3, 5, "4g.40gb", 4, 1, 40448, 56, 4, 2, 0, 0, 4, (0,)),
    (4, 0, "7g.80gb", 7, 1, 81152, 98, 7, 5, 1, 1, 8, (0,)),
)
A30 = _table(
    (0, 14, "1g.6gb", 1, 4, 5952, 14, 1, 0, 0, 0, 1, (0, 1, 2, 3)),
    (7, 21, "1g.6gb+me", 1, 1, 5952, 14, 1, 1, 1, 1, 1, (0, 1, 2, 3)),
    (1, 5, "2g.12gb", 2, 2, 11968, 28, 2, 2, 0, 0, 2, (0, 2)),
    (8, 6, "2g.12gb+me", 2, 1, 11968, 28, 2, 2, 1, 1, 2, (0, 2)),
    (3, 0, "4g.24gb", 4, 1, 24064, 56, 4, 4, 1, 1, 4, (0,)),
)
H100_80GB = _table(
    (0, 19, "1g.10gb", 1, 7, 9984, 16, 1, 1, 1, 0, 1, SEVEN),
    (7, 20, "1g.10gb+me", 1, 1, 9984, 16, 1, 1, 1, 1, 1, SEVEN),
    (9, 15, "1g.20gb", 1, 4, 20096, 26, 1, 1, 1, 0, 2, (0, 2, 4, 6)),
    (1, 14, "2g.20gb", 2, 3, 20096, 32, 2, 2, 2, 0, 2, (0, 2, 4)),
    (2, 9, "3g.40gb", 3, 2, 40448, 60, 3, 3, 3, 0, 4, (0, 4)),
    (3, 5, "4g.40gb", 4, 1, 40448, 64, 4, 4, 4, 0, 4, (0,)),
    (4, 0, "7g.80gb", 7, 1, 81152, 132, 8, 7, 7, 1, 8, (0,)),
)
H200_141GB = _table(
    (0, 19, "1g.18gb", 1, 7, 16384, 16, 1, 1, 1, 0, 1, SEVEN),
    (7, 20, "1g.18gb+me", 1, 1, 16384, 16, 1, 1, 1, 1, 1, SEVEN),
    (9, 15, "1g.35gb", 1, 4, 33024, 26, 1, 1, 1, 0, 2, (0, 2, 4, 6)),
    (1, 14, "2g.35gb", 2, 3, 33024, 32, 2, 2, 2, 0, 2, (0, 2, 4)),
    (2, 9, "3g.71gb", 3, 2, 71168, 60, 3, 3, 3, 0, 4, (0, 4)),
    (3, 5, "4g.71gb", 4, 1, 71168, 64, 4, 4, 4, 0, 4, (0,)),
    (4, 0, "7g.141gb", 7, 1, 143104, 132, 8, 7, 7, 1, 8, (0,)),
)
B200_180GB = _table(
    (0, 19, "1g.23gb", 1, 7, 22528, 18, 2, 1, 1, 0, 1, SEVEN),
    (7, 20, "1g.23gb+me", 1, 1, 22528, 18, 2, 1, 1, 1, 1, SEVEN),
    (9, 15, "1g.45gb", 1, 4, 45312, 30, 2, 1, 1, 0, 2, (0, 2, 4, 6)),
    (1, 14, "2g.45gb", 2, 3, 45312, 36, 4, 2, 2, 0, 2, (0, 2, 4)),
    (2, 9, "3g.90gb", 3, 2, 91136, 70, 6, 3, 3, 0, 4, (0, 4)),
    (3, 5, "4g.90gb", 4, 1, 91136, 72, 8, 4, 4, 0, 4, (0,)),
    (4, 0, "7g.180gb", 7, 1, 182784, 148, 16, 7, 7, 1, 8, (0,)),
)
