"""Tests of kernels.native.indexing: elements and parts picked and written natively."""
