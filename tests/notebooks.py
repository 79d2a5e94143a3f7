"""A kernel's stand-in: cells run in order, displays are kept by their id."""

from __future__ import annotations

import ast
import sys
from types import SimpleNamespace


class Kernel:
    """IPython's shell as far as ngramkit uses it. `run` returns the value of a cell's last line."""

    def __init__(self, monkeypatch):
        self.kernel = self.display_pub = self.events = self
        self.displays = {}  # id -> every version of its data
        self.callbacks = []
        self.names = {"__name__": "__main__"}
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: self))

    def publish(self, data, metadata, transient, update):
        versions = self.displays.setdefault(transient["display_id"], [])
        assert update == bool(versions)
        versions.append(data)

    def register(self, event, callback):
        assert event == "post_run_cell"
        self.callbacks.append(callback)

    def unregister(self, event, callback):
        self.callbacks.remove(callback)

    def end_cell(self, success=True):
        for callback in list(self.callbacks):
            callback(SimpleNamespace(success=success))

    def run(self, code):
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        try:
            exec(compile(tree, "cell", "exec"), self.names)
            if last is None:
                return None
            return eval(compile(ast.Expression(last.value), "cell", "eval"), self.names)
        finally:
            self.end_cell(sys.exc_info()[0] is None)
