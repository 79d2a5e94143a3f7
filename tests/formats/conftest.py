import pytest
from histories import RECORD

from ngramkit.formats.history import History


@pytest.fixture
def history(tmp_path):
    """An empty one."""
    return History.at(tmp_path / "past", RECORD)
