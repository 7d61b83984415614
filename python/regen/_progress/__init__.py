"""What takes long says how far it is: on a terminal and in notebooks by itself, to programs through `logging` and callbacks."""
