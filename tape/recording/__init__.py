"""Operations applied and recorded: promotion, calls that repeat, views, indexing, writes in place."""
