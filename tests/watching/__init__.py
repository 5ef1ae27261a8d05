"""Tests of tape.compiled: functions recorded, guarded and replayed."""
