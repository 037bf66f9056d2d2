"""Code that is edited here and runs on the hosts: what has changed is copied, and loaded again where it runs.

python examples/workspace.py
"""

import asyncio
import importlib
import tempfile
from pathlib import Path

from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob
from monarch.tools.config import Workspace


class Runner(Actor):
    @endpoint
    def run(self, x: int) -> int:
        result: int = importlib.import_module("recipe").cook(x)
        return result


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        project, there = Path(directory, "project"), Path(directory, "there")
        project.mkdir()
        recipe = project / "recipe.py"
        recipe.write_text("def cook(x):\n    return x + 1\n")

        # Each host says by WORKSPACE_DIR where workspaces go. These hosts are processes of this machine, and share it.
        env = {"WORKSPACE_DIR": str(there), "PYTHONPATH": str(there / "project")}
        job = ProcessJob({"hosts": 2}, env=env)
        try:
            hosts = job.state(cached_path=None).hosts
            workspace = Workspace(dirs=[project])
            await hosts.sync_workspace(workspace)
            runners = hosts.spawn_procs({"cpus": 2}).spawn("runners", Runner)
            print((await runners.run.call(20)).values())

            recipe.write_text("def cook(x):\n    return x * 2\n")
            await hosts.sync_workspace(workspace, auto_reload=True)
            print((await runners.run.call(20)).values())
            await hosts.shutdown()
        finally:
            job.kill()


if __name__ == "__main__":
    asyncio.run(main())
