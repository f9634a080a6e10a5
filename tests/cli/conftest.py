"""What tests of the command line share."""

from __future__ import annotations

import pytest

from bertsmith.cli import main as cli


@pytest.fixture
def run(capsys):
    """Run a command line in this process; gives exit code, stdout, stderr."""

    def call(*arguments):
        code = cli.run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call
