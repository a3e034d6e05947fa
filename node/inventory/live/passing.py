"""A blocking call in a thread that ends with it.

``asyncio.to_thread`` keeps up to a handful of threads for the life of the process, some 0.2 MB each; calls made here
happen once at the start, and again only after a failure.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def in_passing(
    call: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Result:
    """Return what ``call`` returns, or raise what it raises; if this is cancelled, the thread ends with the call."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, functools.partial(call, *arguments, **options))
    finally:
        thread.shutdown(wait=False)
