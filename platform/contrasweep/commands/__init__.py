"""Any executable as a trainable: `command: [python, train.py, --lr, "{lr}", --fold, "{fold}"]`.

dataset       a part of a dataset as files that any program reads
files         metrics in the files that training programs leave
metrics       the reports of a command, from its lines for us, its output and its files
placeholders  what stands in braces in the command, and the files of the project that it names
process       the child process: its output, its end, SIGTERM
supervisor    the process that ends the command, also where the trial's worker is gone
trainable     the generator that puts these together: `contrasweep.commands.trainable:train`
"""

COMMAND_PATH = "contrasweep.commands.trainable:train"
"""The trainable that an arm with a `command` has."""
COMMAND = "command"
"""The key of such an arm's config that holds the words of the command."""
OPTIONS = "command_options"
"""The key of such an arm's config that holds what the arm says beside the words: `metrics`, `names`, `code`."""
