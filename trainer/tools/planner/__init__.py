"""What a training run will need, before it is started: memory, time and cost; and the loss to expect."""
