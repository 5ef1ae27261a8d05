"""What native code checks before it replays a program: that what the function reads from outside is as it was."""
