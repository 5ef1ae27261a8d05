"""Operations on shapes: joining, splitting, rearranging, padding, grids."""
