"""Any executable as a trainable: `command: [python, train.py, --lr, "{lr}", --fold, "{fold}"]`.

words      placeholders in the command, and the files of the project that it names
dataset    a part of a dataset as files that any program reads
metrics    what the command reports: JSON lines in a file
process    the child process: its output, its end, SIGTERM
trainable  the generator that puts these together: `contrasweep.commands.trainable:train`
"""

PATH = "contrasweep.commands.trainable:train"
"""The trainable that an arm with a `command` has."""
COMMAND = "command"
"""The key of its config that holds the words."""
