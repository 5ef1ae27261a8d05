"""The tables of linear algebra."""
