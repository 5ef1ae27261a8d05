"""What a compiled function is for native code: callable in ``@njit``, by ctypes, by SciPy, and as a file of C."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from kernels.programs.compiler.compiled_code import CompiledCode


class NativeUse:
    """What a compiled function with a native program offers to native code.

    All of it is of the latest program, for the shapes and dtypes of the arguments it was last called with. Guards are
    looked at, and one that misses shows in the status; nothing is recorded anew, and what the function read from
    outside is as it was.
    """

    __module__ = "tape"
    __name__: str

    def _native_code(self) -> tuple[CompiledCode, Sequence[str]]:
        """Return the latest program, and the names of its arguments."""
        raise NotImplementedError

    @property
    def native(self) -> Any:
        """The function as ``@numba.njit`` code calls it; value and gradients come with a status.

        ``status, value = native(x, y, grad_x, grad_y)``: it takes the arguments, arrays for outputs that have
        dimensions, and arrays for the gradients, or None in place of one that is not wanted. Arrays have the shapes and
        dtypes of the last call; an argument that was a float is a number, and the gradient by it goes into an array of
        one element. Results are C-contiguous and overlap with nothing.

        It returns the status and the outputs that have no dimensions, or the status alone: 0; k > 0 if guard k - 1
        missed, or, one more than there are guards, if an operation raised, with undefined results; -k if the k-th array
        has another shape or other strides than was recorded, with nothing computed. Wrong dtypes and numbers of
        dimensions are errors when the caller is compiled.

        Get it before, as ``native = f.native``: ``@njit`` code does not know the compiled function itself. It may be
        called from threads, without the interpreter lock.
        """
        from kernels.programs.native_use.numba_entry import native_function

        code, names = self._native_code()
        return native_function(code, tuple(names))

    @property
    def address(self) -> int:
        """Where its machine code begins: ``int64_t f(...)``, for C, Cython and cffi, as long as the process lives.

        It takes the arguments, then the addresses of all outputs and of all gradients: an argument without dimensions
        by value, others by address. It returns the status, and looks at no shape: ``f.export_c`` writes its prototype.
        """
        from kernels.programs.native_use.native_entry import flat_address

        return flat_address(self._native_code()[0])

    @property
    def ctypes(self) -> Any:
        """The function at ``address`` as ctypes calls it, without the interpreter lock.

        For arguments without dimensions it takes numbers; for others, and for results, an array of the shape and dtype
        that were recorded, an address, or what ``ctypes.byref`` returns. ArgumentError for other arrays. It returns the
        status as an int.
        """
        from kernels.programs.native_use.numba_entry import flat_function

        code, names = self._native_code()
        return flat_function(code, tuple(names))

    def low_level_callable(self) -> Any:
        """Return the value alone as a ``scipy.LowLevelCallable``, for ``scipy.integrate.quad`` and its kin.

        Its signature is ``double (double)`` for a function of one float, and ``double (int, double *)`` for one of
        several floats or of one array of one dimension. The value is nan where a guard misses. TypeError for functions
        of other arguments, and those that return no float64 number.
        """
        from scipy import LowLevelCallable

        from kernels.programs.native_use.native_entry import number_address

        code, _ = self._native_code()
        address, single = number_address(code)
        kinds = [ctypes.c_double] if single else [ctypes.c_int, ctypes.POINTER(ctypes.c_double)]
        return LowLevelCallable(ctypes.CFUNCTYPE(ctypes.c_double, *kinds)(address))

    def export_c(self, path: str | PathLike[str], *, name: str = "") -> None:
        """Write the function, its gradients included, as a C99 file that needs ``<math.h>`` alone, and its header.

        ``path`` ends in ``.c``; the header, beside it, in ``.h``: it says what the function takes and returns, as
        ``address`` does. ``name`` is that of the C function, else the name of this one. Elementary functions are those
        of C's library, so that results differ from ours in the last digits.

        ValueError for a path that ends otherwise, and a name that is none in C; TypeError for a function that calls
        what C has no counterpart of, such as SciPy's special functions.
        """
        code, names = self._native_code()
        write_c(path, code, names, name or re.sub(r"\W", "_", self.__name__, flags=re.ASCII))


def write_c(path: str | PathLike[str], code: CompiledCode, names: Sequence[str], name: str) -> None:
    """Write one program as a function of C: a file and its header; see :meth:`NativeUse.export_c`."""
    from kernels.programs.native_use.c_source import c_files

    place = Path(path)
    if place.suffix != ".c":
        raise ValueError(f"export_c writes a C file and its header: {str(place)!r} does not end in .c")
    header, source = c_files({name: (code, names)}, f"{place.stem}.h", f"The function {name}, compiled.")
    place.with_suffix(".h").write_text(header, encoding="utf-8")
    place.write_text(source, encoding="utf-8")
