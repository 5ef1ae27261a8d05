"""Programs as source: fused statements, the scalar program, its gradient, storage, printed text."""
