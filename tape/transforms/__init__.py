"""From functions to functions: points, value_and_grad, blocks of Jacobians, signatures."""
