"""The native language: structs, Python source to LLVM, vectorised elementary functions, the cache on disk."""
