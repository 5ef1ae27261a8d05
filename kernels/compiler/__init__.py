"""The compiler: native source to LLVM, machine code and its cache, the one door ``jit``."""
