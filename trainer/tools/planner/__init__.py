"""What a training run will take and give, before it is started: memory, time, cost, and the loss that scaling
laws expect.
"""
