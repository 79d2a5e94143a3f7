"""What ngramkit does, as functions: each command of the command line is a call of one of these."""
