"""Tests of tape.ensembles: a function of many parameter sets."""
