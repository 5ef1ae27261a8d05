"""Tests of kernels.foundation and tape.foundation: keys, tables that forget, printing, devices."""
