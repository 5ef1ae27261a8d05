"""The tables of records, one declaration per operation; ``registry`` has them all."""
