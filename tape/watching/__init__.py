"""What a function reads from outside, and which loops it runs through: what Python code is watched for."""
