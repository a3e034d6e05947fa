"""Every client of a Unix socket in the agent has the channel arguments that keep gRPC quiet afterwards."""

from __future__ import annotations

import ast
from pathlib import Path

from node.kubelet import podresources
from node.sockets import CHANNEL

ROOT = Path(__file__).resolve().parent.parent.parent.parent
FOLDERS = ("node", "plugin", "driver", "ostler/agent", "ostler/admin")
WITH_CHANNEL = {"CHANNEL": CHANNEL, "OPTIONS": podresources.OPTIONS}


def channels() -> dict[str, str]:
    """The options of every channel that the agent makes, by place."""
    return {
        f"{path.relative_to(ROOT)}:{call.lineno}": next(
            (ast.unparse(each.value) for each in call.keywords if each.arg == "options"), ""
        )
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "insecure_channel(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "insecure_channel"
    }


def test_no_channel_probes_its_bandwidth_or_shares_its_connection() -> None:
    assert dict(CHANNEL) == {"grpc.use_local_subchannel_pool": 1, "grpc.http2.bdp_probe": 0}
    assert all(set(CHANNEL) <= set(options) for options in WITH_CHANNEL.values())
    found = channels()
    assert len(found) >= 5
    assert {place: options for place, options in found.items() if options not in WITH_CHANNEL} == {}
