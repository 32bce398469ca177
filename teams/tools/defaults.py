"""The default set of tools over one work directory: bash, read_file, write_file, edit_file, glob, grep."""

import os
from collections.abc import Iterable, Mapping

from teams.tools.dispatcher import Cap, OnError, ToolDispatcher, ToolLimits
from teams.tools.files import file_tools
from teams.tools.processes import Ending
from teams.tools.search import search_tools
from teams.tools.shell import shell_tool
from teams.tools.workspace import Workspace


def make_default_dispatcher(
    workdir: str | os.PathLike[str] | Workspace,
    *,
    limits: ToolLimits | None = None,
    shell_environment: Mapping[str, str] | None = None,
    denied: Iterable[str | os.PathLike[str]] = (),
    cap: Cap | None = None,
    on_error: OnError | None = None,
) -> ToolDispatcher:
    """Make a dispatcher with the default tools, confined to a directory; further tools can be registered until its definitions are read.

    Agents that share a directory should share the `Workspace` or the dispatcher; two workspaces of one directory still refuse to overwrite
    what their own agents did not see.

    Args:
        workdir: an existing directory, or a workspace of it.
        limits: for every call; the default is two minutes and 50,000 characters.
        shell_environment: variables for `bash` besides the few that are passed on from this process.
        denied: paths in the directory that no file tool may touch; not with a workspace, which has its own.
        cap: shortens outputs that are over the limit.
        on_error: is told of every exception that became an error result.

    Raises:
        NotADirectoryError: there is no such directory.
    """
    limits = limits or ToolLimits()
    workspace = workdir if isinstance(workdir, Workspace) else Workspace(workdir, denied=denied)
    dispatcher = ToolDispatcher(limits=limits, workdir=workspace.root, cap=cap, on_error=on_error)
    shell = shell_tool(
        workspace.root,
        environment=shell_environment,
        time_seconds=limits.time_seconds,
        output_chars=limits.output_chars,
        ending=Ending(limits.cancel_seconds, limits.kill_seconds),
    )
    dispatcher.add(shell)
    dispatcher.register_many(file_tools(workspace, output_chars=limits.output_chars))
    dispatcher.register_many(search_tools(workspace, output_chars=limits.output_chars))
    return dispatcher
