"""Compiles functions that are only called by other compiled functions, no further than their callers need.

Numba optimises every function together with all its callees and generates machine code for it.  For a function that only
other compiled functions call, every caller repeats both, and a chain of calls is compiled once for each of its links.  With
this pipeline such a function remains LLVM IR; the function at the end of the chain, which Python calls, is optimised once
with everything inlined.  The machine code is the same; the scanners compile in about half the time.
"""

from __future__ import annotations

import weakref
from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, StateDict, _LowerResult
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites


class _UnfinishedLibrary(JITCodeLibrary):
    """Code that other code links and that never runs by itself."""

    def _optimize_final_module(self) -> None:
        """Do not optimise."""

    def _finalize_final_module(self) -> None:
        """Finish without generating machine code."""
        self._final_module.__library = weakref.proxy(self)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _NestedLowering(NativeLowering):
    """Numba's own translation, into such a library."""

    _name = "nested_lowering"

    def run_pass(self, state: StateDict) -> bool:
        """Translate, and let callers find the result through an entry point that is never called."""
        library: Any = _UnfinishedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        state.library = library
        library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        lowered = state["cr"]
        name = lowered.fndesc.qualname.rpartition(".")[2]
        entry = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "nested", 0, lowered.env, (library,))
        state.targetctx.insert_user_function(entry, lowered.fndesc, [library])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=entry, env=lowered.env)
        return True


class NestedCompiler(CompilerBase):
    """Numba's pipeline with that translation; the `pipeline_class` of `compile_cache.nested`."""

    def define_pipelines(self) -> list[PassManager]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_NestedLowering if each is NativeLowering else each, about)
            for each, about in passes.passes
            if each is not NopythonRewrites  # they apply to expressions of whole arrays, which do not occur
        ]
        passes.finalize()
        return [passes]
