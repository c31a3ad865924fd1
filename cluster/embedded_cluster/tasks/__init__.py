"""What a command does from end to end: check the machine, the demo with and without a cluster, the trainer's image."""
