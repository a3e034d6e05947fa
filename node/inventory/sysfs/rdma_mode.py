"""Whether RDMA devices belong to network namespaces: the mode that ``rdma system set netns`` sets.

The kernel shows it as a parameter of the module ib_core, built in or not, and keeps it up to date; RDMA netlink tells
the same, at the price of loading that module where there is no RDMA at all. A kernel before 5.3 has neither and shares.
"""

from __future__ import annotations

import errno

from node.inventory.sysfs.small_file import Unreadable, read_text


def rdma_exclusive(sys: str, errors: list[str]) -> bool | None:
    """Whether each RDMA device works in one network namespace only; None where the kernel does not say.

    What cannot be read is a line in ``errors``.
    """
    try:
        return read_text(f"{sys}/module/ib_core/parameters/netns_mode") == "N"
    except Unreadable as error:
        cause = error.__cause__
        if not (isinstance(cause, OSError) and cause.errno in (errno.ENOENT, errno.ENOTDIR)):
            errors.append(str(error))
        return None
