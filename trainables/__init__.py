"""What learns: similarities, losses, encoders, augmentations, train loops, and the methods themselves."""
