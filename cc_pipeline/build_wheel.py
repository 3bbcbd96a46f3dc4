"""Builds the wheel: without compiled parts it fits every machine, and its name says so. Used by builds only."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel


class BuildWheel(bdist_wheel):
    """Builds the compiled parts first. They are optional: without a compiler there are none."""

    def run(self) -> None:
        """Builds the wheel: with the tag of this platform, or ``py3-none-any``."""
        if not self.skip_build and self.distribution.has_ext_modules():
            self.run_command("build")
            built = [Path(name).is_file() for name in self.get_finalized_command("build_ext").get_outputs()]
            if not any(built):
                self.distribution.ext_modules = []
                self.root_is_pure = True
                self.reinitialize_command("build", reinit_subcommands=True)
            if not all(built):
                self.warn(f"{built.count(False)} of {len(built)} compiled parts were not built: pages parse slower")
        super().run()
